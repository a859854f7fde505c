#include "observe/chrome_trace.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <iterator>

#include "base/error.hpp"
#include "base/terminal_text.hpp"

namespace lockstep::observe {
namespace {

void append_number(std::string& out, int64_t value) {
  std::array<char, 24> digits;
  const auto end = std::to_chars(digits.data(), digits.data() + digits.size(), value).ptr;
  out.append(digits.data(), end);
}

// Nanoseconds as microseconds with three decimals, exactly.
void append_microseconds(std::string& out, int64_t ns) {
  const uint64_t size = ns < 0 ? uint64_t{0} - static_cast<uint64_t>(ns) : static_cast<uint64_t>(ns);
  std::array<char, 32> digits;
  char* end = digits.data();
  if (ns < 0) *end++ = '-';
  end = std::to_chars(end, digits.data() + digits.size(), size / 1000).ptr;
  const uint64_t rest = size % 1000;
  *end++ = '.';
  for (const uint64_t unit : {100, 10, 1}) *end++ = static_cast<char>('0' + rest / unit % 10);
  out.append(digits.data(), end);
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

// What all events of a track begin with.
struct ChromeTraceWriter::Thread {
  std::string place;  // "pid":1,"tid":4
  std::string slice;  // {"ph":"X", place, category, "name":
};

ChromeTraceWriter::ChromeTraceWriter(const std::filesystem::path& path, int64_t origin_ns)
    : file_(path), origin_ns_(origin_ns) {
  file_.buffer() = begin;
}

std::string& ChromeTraceWriter::begin_event() {
  file_.written();
  file_.buffer() += first_ ? "\n" : ",\n";
  first_ = false;
  return file_.buffer();
}

void ChromeTraceWriter::process(int rank, std::string_view name) {
  begin_event() += fmt::format(R"({{"ph":"M","name":"process_name","pid":{},"args":{{"name":{}}}}})",
                               process_id(rank), json_quote(name));
  begin_event() +=
      fmt::format(R"({{"ph":"M","name":"process_sort_index","pid":{},"args":{{"sort_index":{}}}}})",
                  process_id(rank), rank);
}

void ChromeTraceWriter::name_thread(const Thread& thread, const Track& track) {
  begin_event() += fmt::format(R"({{"ph":"M","name":"thread_name",{},"args":{{"name":{}}}}})", thread.place,
                               json_quote(track.name));
  begin_event() += fmt::format(R"({{"ph":"M","name":"thread_sort_index",{},"args":{{"sort_index":{}}}}})",
                               thread.place, track.place);
}

void ChromeTraceWriter::track(const SpanFile& file, const Track& track) {
  Thread thread{fmt::format(R"("pid":{},"tid":{})", process_id(file.rank), thread_id(track)), ""};
  thread.slice = fmt::format(R"({{"ph":"X",{},"cat":"{}","name":)", thread.place, stream_name(track.stream));
  std::vector<std::string> names;
  for (const std::string& name : file.names) names.push_back(json_quote(name));
  name_thread(thread, track);
  for (const uint32_t index : track.spans) {
    const Span& span = file.spans[index];
    slice(thread, names[span.name], span);
    if (span.message_end != MessageEnd::none) flow(thread, span);
  }
}

void ChromeTraceWriter::slice(const Thread& thread, const std::string& name, const Span& span) {
  std::string& out = begin_event();
  out += thread.slice;
  out += name;
  out += ",\"ts\":";
  append_microseconds(out, span.start_ns - origin_ns_);
  out += ",\"dur\":";
  append_microseconds(out, span.end_ns - span.start_ns);
  std::string_view before = ",\"args\":{\"";
  for (const SliceArgument& argument : SliceArguments(span)) {
    out += before;
    out += argument_names[argument.name];
    out += "\":";
    append_number(out, argument.value);
    before = ",\"";
  }
  out += "}}";
}

// A flow event binds to the slice that encloses its time, ends excluded: leave at the sender's start, arrive
// just before the receiver's end. Ids are strings because a JSON reader may keep only 53 bits of a number.
void ChromeTraceWriter::flow(const Thread& thread, const Span& span) {
  const bool sent = span.message_end == MessageEnd::sent;
  const int64_t time = sent ? span.start_ns : std::max(span.start_ns, span.end_ns - 1);
  std::string& out = begin_event();
  fmt::format_to(std::back_inserter(out),
                 R"({{"ph":"{}","id":"{:#x}",{},"cat":"message","name":"message",{}"ts":)", sent ? 's' : 'f',
                 span.message, thread.place, sent ? "" : R"("bp":"e",)");
  append_microseconds(out, time - origin_ns_);
  out += '}';
}

void ChromeTraceWriter::counter(int rank, std::string_view name, int64_t time_ns,
                                const std::vector<std::pair<std::string_view, double>>& series) {
  for (const auto& [key, value] : series) {
    if (!std::isfinite(value))
      throw RunError(fmt::format("counter {} of the trace: {} is {}", name, key, value));
  }
  std::string& out = begin_event();
  fmt::format_to(std::back_inserter(out), R"({{"ph":"C","pid":{},"name":{},"ts":)", process_id(rank),
                 json_quote(name));
  append_microseconds(out, time_ns - origin_ns_);
  out += ",\"args\":{";
  bool first = true;
  for (const auto& [key, value] : series) {
    fmt::format_to(std::back_inserter(out), "{}{}:{}", first ? "" : ",", json_quote(key), value);
    first = false;
  }
  out += "}}";
}

void ChromeTraceWriter::close() {
  if (closed_) return;
  closed_ = true;
  file_.buffer() += "\n]}\n";
  file_.close();
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

}  // namespace lockstep::observe
