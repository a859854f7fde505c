#include "observe/span.hpp"

#include <fmt/format.h>

#include <bit>
#include <cstring>
#include <ctime>
#include <system_error>
#include <type_traits>

#include "base/error.hpp"
#include "observe/atomic_file.hpp"
#include "observe/read_file.hpp"

namespace lockstep::observe {
namespace {

static_assert(std::endian::native == std::endian::little, "span files are little-endian");

// Layout: magic, i32 rank, i64 dropped, u64 names, u64 spans; each name as u32 length and bytes; each span's
// fields packed, in the order of for_each_field; u64 FNV-1a of all bytes before.
constexpr std::string_view magic = "LSSPAN01";
constexpr size_t packed_span_bytes = 4 * 8 + 4 * 4 + 2;
constexpr size_t max_name_bytes = 4096;

uint64_t fnv1a(std::string_view bytes) {
  uint64_t hash = 0xCBF29CE484222325u;
  for (const char c : bytes) hash = (hash ^ static_cast<unsigned char>(c)) * 0x100000001B3u;
  return hash;
}

template <typename S, typename Visit>
void for_each_field(S& span, const Visit& visit) {
  visit(span.start_ns);
  visit(span.end_ns);
  visit(span.bytes);
  visit(span.message);
  visit(span.name);
  visit(span.step);
  visit(span.chunk);
  visit(span.micro_batch);
  visit(span.stream);
  visit(span.message_end);
}

template <typename T>
void put(std::string& out, T value) {
  static_assert(std::is_trivially_copyable_v<T>);
  char bytes[sizeof(T)];
  std::memcpy(bytes, &value, sizeof(T));
  out.append(bytes, sizeof(T));
}

// Takes values off the front of a file's bytes; never reads past their end.
class Taker {
 public:
  Taker(std::string_view bytes, const std::filesystem::path& path) : bytes_(bytes), path_(path) {}

  std::string_view bytes(size_t count) {
    if (count > bytes_.size()) fail("it ends too early");
    const std::string_view taken = bytes_.substr(0, count);
    bytes_.remove_prefix(count);
    return taken;
  }
  template <typename T>
  T value() {
    T result;
    std::memcpy(&result, bytes(sizeof(T)).data(), sizeof(T));
    return result;
  }
  size_t left() const { return bytes_.size(); }

  [[noreturn]] void fail(std::string_view why) const {
    throw RunError(fmt::format("{}: not a whole span file: {}", path_.string(), why));
  }

 private:
  std::string_view bytes_;
  const std::filesystem::path& path_;
};

std::string read_all(const std::filesystem::path& path) {
  try {
    return read_file(path);
  } catch (const std::system_error& error) {
    throw RunError(fmt::format("{}: cannot read the span file: {}", path.string(), error.code().message()));
  }
}

Span take_span(Taker& in, size_t names) {
  Span span;
  // The two enums are read as numbers first: a value outside an enum must not get into one.
  for_each_field(span, [&](auto& field) {
    using Field = std::remove_reference_t<decltype(field)>;
    if constexpr (std::is_enum_v<Field>) {
      const auto number = in.value<std::underlying_type_t<Field>>();
      const int limit = std::is_same_v<Field, Stream> ? stream_count : 3;
      if (number >= limit) in.fail("a span has an unknown stream or message end");
      field = static_cast<Field>(number);
    } else {
      field = in.value<Field>();
    }
  });
  if (span.end_ns < span.start_ns) in.fail("a span ends before it starts");
  if (span.name >= names) in.fail("a span's name is not in the file");
  return span;
}

}  // namespace

int64_t monotonic_ns() {
  timespec now{};
  clock_gettime(CLOCK_MONOTONIC, &now);
  return int64_t{now.tv_sec} * 1'000'000'000 + now.tv_nsec;
}

SpanRecorder::SpanRecorder(int rank, size_t capacity) : rank_(rank) { spans_.reserve(capacity); }

uint32_t SpanRecorder::name_id(std::string_view name) {
  const auto [entry, added] = ids_.try_emplace(std::string(name), static_cast<uint32_t>(names_.size()));
  if (added) names_.emplace_back(name);
  return entry->second;
}

void SpanRecorder::save(const std::filesystem::path& path) const {
  std::string out;
  out.reserve(64 + names_.size() * 32 + spans_.size() * packed_span_bytes);
  out.append(magic);
  put(out, int32_t{rank_});
  put(out, dropped_);
  put(out, uint64_t{names_.size()});
  put(out, uint64_t{spans_.size()});
  for (const std::string& name : names_) {
    if (name.size() > max_name_bytes) throw RunError(fmt::format("span name of {} bytes", name.size()));
    put(out, static_cast<uint32_t>(name.size()));
    out.append(name);
  }
  for (const Span& span : spans_) {
    for_each_field(span, [&](const auto& field) { put(out, field); });
  }
  put(out, fnv1a(out));
  write_file_atomically(path, out);
}

SpanFile load_spans(const std::filesystem::path& path) {
  const std::string content = read_all(path);
  Taker in(content, path);
  if (in.bytes(magic.size()) != magic) in.fail("it does not begin as one");
  SpanFile file;
  file.rank = in.value<int32_t>();
  file.dropped = in.value<int64_t>();
  if (file.rank < 0 || file.dropped < 0) in.fail("its rank or count of dropped spans is negative");
  const auto names = in.value<uint64_t>();
  const auto spans = in.value<uint64_t>();
  // Counts come from the file: hold them against its size before memory is taken for them.
  if (names > in.left() / sizeof(uint32_t) || spans > in.left() / packed_span_bytes) {
    in.fail("it is shorter than its counts say");
  }
  file.names.reserve(names);
  for (uint64_t i = 0; i < names; ++i) {
    const auto length = in.value<uint32_t>();
    if (length > max_name_bytes) in.fail("a name is too long");
    file.names.emplace_back(in.bytes(length));
  }
  file.spans.reserve(spans);
  for (uint64_t i = 0; i < spans; ++i) file.spans.push_back(take_span(in, file.names.size()));
  const std::string_view before = std::string_view(content).substr(0, content.size() - in.left());
  if (in.value<uint64_t>() != fnv1a(before)) in.fail("its checksum does not match");
  if (in.left() != 0) in.fail("it goes on after its end");
  return file;
}

}  // namespace lockstep::observe
