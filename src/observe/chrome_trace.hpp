// Chrome trace event JSON, as chrome://tracing and Perfetto open it: a process a rank, a thread a track.
// Source: "Trace Event Format" (Google): X complete events, M metadata, C counters, s/f flows; ts and dur in
// microseconds, written here with three decimals so that nanoseconds stay exact.
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "observe/step_record.hpp"
#include "observe/trace_file.hpp"
#include "observe/trace_writer.hpp"

namespace lockstep::observe {

class ChromeTraceWriter : public TraceWriter {
 public:
  static constexpr std::string_view begin = "{\"displayTimeUnit\":\"ms\",\"traceEvents\":[";

  explicit ChromeTraceWriter(const std::filesystem::path& path, int64_t origin_ns = 0);

  void process(int rank, std::string_view name) override;
  // X events, and after a message's end its flow event.
  void track(const SpanFile& file, const Track& track) override;
  // A C event: one counter of a rank with one or more series at a time. Values must be finite.
  void counter(int rank, std::string_view name, int64_t time_ns,
               const std::vector<std::pair<std::string_view, double>>& series);
  void close() override;

 private:
  struct Thread;

  std::string& begin_event();
  void name_thread(const Thread& thread, const Track& track);
  void slice(const Thread& thread, const std::string& name, const Span& span);
  void flow(const Thread& thread, const Span& span);

  TraceFile file_;
  int64_t origin_ns_;
  bool first_ = true;
  bool closed_ = false;
};

// A counter "exposed ms" of the file's rank, by axis: its value of a step stands from the step's first span
// on, and 0 after the last step. Steps without a value are left out.
void write_exposed(ChromeTraceWriter& writer, const SpanFile& file,
                   const std::map<int64_t, ExposedSeconds>& exposed_of);

// `text` as a JSON string with its quotes. Bytes that are not valid UTF-8 become U+FFFD.
std::string json_quote(std::string_view text);

}  // namespace lockstep::observe
