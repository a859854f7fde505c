// Chrome trace event JSON, as chrome://tracing and Perfetto open it: a process a rank, a thread a stream.
// Source: "Trace Event Format" (Google): X complete events, M metadata, C counters, s/f flows; ts and dur in
// microseconds, written here with three decimals so that nanoseconds stay exact.
#pragma once

#include <cstdint>
#include <cstdio>
#include <filesystem>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "observe/span.hpp"
#include "observe/step_record.hpp"

namespace lockstep::observe {

// Streams events to a file as they come, so a trace of any length needs little memory. Times are nanoseconds;
// `origin_ns` is subtracted from each. A failed write is a RunError; the file is whole only after close().
class ChromeTraceWriter {
 public:
  explicit ChromeTraceWriter(const std::filesystem::path& path, int64_t origin_ns = 0);
  ~ChromeTraceWriter();  // closes, but cannot report a failed write: call close()
  ChromeTraceWriter(const ChromeTraceWriter&) = delete;
  ChromeTraceWriter& operator=(const ChromeTraceWriter&) = delete;

  // Names a rank ("rank 3  tp1 pp1 dp0"); ranks are sorted by number. Call it once a rank, before or after
  // events.
  void process(int rank, std::string_view name);

  // One X event, and for a message end its flow event. Args: step, chunk, micro_batch, bytes where they are
  // given. Threads are named when a stream of a rank is first used.
  void span(int rank, std::string_view name, const Span& span);

  // A C event: one counter of a rank with one or more series at a time. Values must be finite.
  void counter(int rank, std::string_view name, int64_t time_ns,
               const std::vector<std::pair<std::string_view, double>>& series);

  void close();

 private:
  void begin_event();
  void name_thread(int rank, Stream stream);
  void flush();

  std::filesystem::path path_;
  int64_t origin_ns_;
  std::unique_ptr<std::FILE, int (*)(std::FILE*)> file_;
  std::string buffer_;
  std::set<std::pair<int, Stream>> threads_;
  bool first_ = true;
};

// All spans of a worker's file. Spans that the recorder had to drop show as one event named so at the end.
void write_spans(ChromeTraceWriter& writer, const SpanFile& file);

// A counter "exposed ms" of the file's rank, by axis: its value of a step stands from the step's first span
// on, and 0 after the last step. Steps without a value are left out.
void write_exposed(ChromeTraceWriter& writer, const SpanFile& file,
                   const std::map<int64_t, ExposedSeconds>& exposed_of);

// `text` as a JSON string with its quotes. Bytes that are not valid UTF-8 become U+FFFD.
std::string json_quote(std::string_view text);

}  // namespace lockstep::observe
