#include "observe/chrome_trace.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cerrno>
#include <cmath>
#include <cstring>
#include <iterator>

#include "base/error.hpp"

namespace lockstep::observe {
namespace {

constexpr size_t flush_bytes = 256 * 1024;

// Nanoseconds as microseconds with three decimals, exactly.
void append_microseconds(std::string& out, int64_t ns) {
  const uint64_t size = ns < 0 ? uint64_t{0} - static_cast<uint64_t>(ns) : static_cast<uint64_t>(ns);
  fmt::format_to(std::back_inserter(out), "{}{}.{:03}", ns < 0 ? "-" : "", size / 1000, size % 1000);
}

// Bytes of the UTF-8 character at the start of `text`; 0 when it is not valid (Unicode 15, table 3-7).
size_t utf8_length(std::string_view text) {
  const auto byte = [&](size_t i) { return i < text.size() ? static_cast<unsigned char>(text[i]) : 0u; };
  const auto follows = [&](size_t i) { return (byte(i) & 0xC0u) == 0x80u; };
  const unsigned first = byte(0);
  if (first < 0x80) return 1;
  if (first >= 0xC2 && first <= 0xDF) return follows(1) ? 2 : 0;
  if (first >= 0xE0 && first <= 0xEF) {
    const bool overlong = first == 0xE0 && byte(1) < 0xA0;
    const bool surrogate = first == 0xED && byte(1) > 0x9F;
    return follows(1) && follows(2) && !overlong && !surrogate ? 3 : 0;
  }
  if (first >= 0xF0 && first <= 0xF4) {
    const bool overlong = first == 0xF0 && byte(1) < 0x90;
    const bool beyond = first == 0xF4 && byte(1) > 0x8F;
    return follows(1) && follows(2) && follows(3) && !overlong && !beyond ? 4 : 0;
  }
  return 0;
}

// Chrome's and Perfetto's viewers give id 0 to the idle process and thread, so both count from 1.
int process_id(int rank) { return rank + 1; }
int thread_id(Stream stream) { return static_cast<int>(stream) + 1; }
// As they stand in the viewer: what compute waited for right under compute.
int sort_index(Stream stream) {
  if (stream == Stream::compute) return 1;
  return stream == Stream::exposed ? 2 : thread_id(stream) + 1;
}

}  // namespace

std::string json_quote(std::string_view text) {
  std::string out = "\"";
  while (!text.empty()) {
    const size_t length = utf8_length(text);
    const char c = text.front();
    if (length == 0) {
      out += "\uFFFD";
    } else if (c == '"' || c == '\\') {
      out += {'\\', c};
    } else if (static_cast<unsigned char>(c) < 0x20) {
      fmt::format_to(std::back_inserter(out), "\\u{:04x}", static_cast<unsigned>(c));
    } else {
      out.append(text.substr(0, length));
    }
    text.remove_prefix(std::max<size_t>(length, 1));
  }
  return out + '"';
}

ChromeTraceWriter::ChromeTraceWriter(const std::filesystem::path& path, int64_t origin_ns)
    : path_(path), origin_ns_(origin_ns), file_(std::fopen(path.c_str(), "wbe"), &std::fclose) {
  if (!file_)
    throw RunError(fmt::format("{}: cannot create the trace: {}", path.string(), std::strerror(errno)));
  buffer_.reserve(flush_bytes + 4096);
  buffer_ = "{\"displayTimeUnit\":\"ms\",\"traceEvents\":[";
}

ChromeTraceWriter::~ChromeTraceWriter() {
  try {
    close();
  } catch (const RunError&) {
    // Told by close(), for those who call it.
  }
}

void ChromeTraceWriter::flush() {
  if (std::fwrite(buffer_.data(), 1, buffer_.size(), file_.get()) != buffer_.size()) {
    throw RunError(fmt::format("{}: cannot write the trace: {}", path_.string(), std::strerror(errno)));
  }
  buffer_.clear();
}

void ChromeTraceWriter::begin_event() {
  if (buffer_.size() >= flush_bytes) flush();
  buffer_ += first_ ? "\n" : ",\n";
  first_ = false;
}

void ChromeTraceWriter::process(int rank, std::string_view name) {
  begin_event();
  fmt::format_to(std::back_inserter(buffer_),
                 R"({{"ph":"M","name":"process_name","pid":{},"args":{{"name":{}}}}})", process_id(rank),
                 json_quote(name));
  begin_event();
  fmt::format_to(std::back_inserter(buffer_),
                 R"({{"ph":"M","name":"process_sort_index","pid":{},"args":{{"sort_index":{}}}}})",
                 process_id(rank), rank);
}

void ChromeTraceWriter::name_thread(int rank, Stream stream) {
  if (!threads_.emplace(rank, stream).second) return;
  begin_event();
  fmt::format_to(std::back_inserter(buffer_),
                 R"({{"ph":"M","name":"thread_name","pid":{},"tid":{},"args":{{"name":"{}"}}}})",
                 process_id(rank), thread_id(stream), stream_name(stream));
  begin_event();
  fmt::format_to(std::back_inserter(buffer_),
                 R"({{"ph":"M","name":"thread_sort_index","pid":{},"tid":{},"args":{{"sort_index":{}}}}})",
                 process_id(rank), thread_id(stream), sort_index(stream));
}

void ChromeTraceWriter::span(int rank, std::string_view name, const Span& span) {
  name_thread(rank, span.stream);
  begin_event();
  const auto out = std::back_inserter(buffer_);
  fmt::format_to(out, R"({{"ph":"X","pid":{},"tid":{},"cat":"{}","name":{},"ts":)", process_id(rank),
                 thread_id(span.stream), stream_name(span.stream), json_quote(name));
  append_microseconds(buffer_, span.start_ns - origin_ns_);
  buffer_ += ",\"dur\":";
  append_microseconds(buffer_, span.end_ns - span.start_ns);
  fmt::format_to(out, R"(,"args":{{"step":{})", span.step);
  if (span.chunk >= 0) fmt::format_to(out, R"(,"chunk":{})", span.chunk);
  if (span.micro_batch >= 0) fmt::format_to(out, R"(,"micro_batch":{})", span.micro_batch);
  if (span.bytes != 0) fmt::format_to(out, R"(,"bytes":{})", span.bytes);
  buffer_ += "}}";
  if (span.message_end == MessageEnd::none) return;

  // A flow event binds to the slice that encloses its time, ends excluded: leave at the sender's start,
  // arrive just before the receiver's end. Ids are strings because a JSON reader may keep only 53 bits of a
  // number.
  const bool sent = span.message_end == MessageEnd::sent;
  const int64_t time = sent ? span.start_ns : std::max(span.start_ns, span.end_ns - 1);
  begin_event();
  fmt::format_to(
      out, R"({{"ph":"{}","id":"{:#x}","pid":{},"tid":{},"cat":"message","name":"message",{}"ts":)",
      sent ? 's' : 'f', span.message, process_id(rank), thread_id(span.stream), sent ? "" : R"("bp":"e",)");
  append_microseconds(buffer_, time - origin_ns_);
  buffer_ += '}';
}

void ChromeTraceWriter::counter(int rank, std::string_view name, int64_t time_ns,
                                const std::vector<std::pair<std::string_view, double>>& series) {
  for (const auto& [key, value] : series) {
    if (!std::isfinite(value))
      throw RunError(fmt::format("counter {} of the trace: {} is {}", name, key, value));
  }
  begin_event();
  fmt::format_to(std::back_inserter(buffer_), R"({{"ph":"C","pid":{},"name":{},"ts":)", process_id(rank),
                 json_quote(name));
  append_microseconds(buffer_, time_ns - origin_ns_);
  buffer_ += ",\"args\":{";
  bool first = true;
  for (const auto& [key, value] : series) {
    fmt::format_to(std::back_inserter(buffer_), "{}{}:{}", first ? "" : ",", json_quote(key), value);
    first = false;
  }
  buffer_ += "}}";
}

void ChromeTraceWriter::close() {
  if (!file_) return;
  buffer_ += "\n]}\n";
  try {
    flush();
  } catch (...) {
    file_.reset();
    throw;
  }
  if (std::fclose(file_.release()) != 0) {
    throw RunError(fmt::format("{}: cannot write the trace: {}", path_.string(), std::strerror(errno)));
  }
}

void write_exposed(ChromeTraceWriter& writer, const SpanFile& file,
                   const std::map<int64_t, ExposedSeconds>& exposed_of) {
  std::map<int64_t, std::pair<int64_t, int64_t>> times;  // by step: its first start and last end
  for (const Span& span : file.spans) {
    auto& [start, end] = times.try_emplace(span.step, span.start_ns, span.end_ns).first->second;
    start = std::min(start, span.start_ns);
    end = std::max(end, span.end_ns);
  }
  const auto write = [&](int64_t time, const ExposedSeconds& e) {
    writer.counter(file.rank, "exposed ms", time,
                   {{"tp", e.tp * 1e3}, {"cp", e.cp * 1e3}, {"pp", e.pp * 1e3}, {"dp", e.dp * 1e3}});
  };
  int64_t last = 0;
  bool any = false;
  for (const auto& [step, time] : times) {
    const auto found = exposed_of.find(step);
    if (found == exposed_of.end()) continue;
    write(time.first, found->second);
    last = time.second;
    any = true;
  }
  if (any) write(last, {});
}

void write_spans(ChromeTraceWriter& writer, const SpanFile& file) {
  for (const Span& span : file.spans) writer.span(file.rank, file.names[span.name], span);
  if (file.dropped == 0) return;
  Span note;
  note.stream = Stream::host;
  for (const Span& span : file.spans) note.end_ns = std::max(note.end_ns, span.end_ns);
  note.start_ns = note.end_ns;
  note.step = file.spans.empty() ? 0 : file.spans.back().step;
  writer.span(file.rank, fmt::format("{} later spans not recorded: the recorder was full", file.dropped),
              note);
}

}  // namespace lockstep::observe
