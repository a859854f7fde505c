// Perfetto's own trace format, a protobuf: a process a rank, a thread a track, slices as pairs of begin and
// end, names interned. Field numbers: Perfetto's protos/perfetto/trace (perfetto_trace.cpp names the files).
#pragma once

#include <cstdint>
#include <filesystem>
#include <string_view>

#include "observe/trace_file.hpp"
#include "observe/trace_writer.hpp"

namespace lockstep::observe {

// Every track is a packet sequence of its own, so that packets of a sequence stand in order of time. Times
// are unsigned in this format: one before `origin_ns` is a RunError.
class PerfettoTraceWriter : public TraceWriter {
 public:
  // Whether a file begins as one of these: with a packet of sequence 1 that clears the state.
  static bool begins(std::string_view bytes);

  explicit PerfettoTraceWriter(const std::filesystem::path& path, int64_t origin_ns = 0);

  void process(int rank, std::string_view name) override;
  // A message's flow leaves with the begin of its send and ends with the end of its receive. Viewers take the
  // earlier of the two for its source, so a message that takes no time at all may point either way.
  void track(const SpanFile& file, const Track& track) override;
  void close() override;

 private:
  void describe_track(const SpanFile& file, const Track& track);
  void begin_slice(const Span& span);
  void end_slice(const Span& span);
  uint64_t timestamp(int64_t time_ns) const;

  TraceFile file_;
  std::filesystem::path path_;
  int64_t origin_ns_;
  uint32_t sequence_ = 0;  // 0 is invalid
};

}  // namespace lockstep::observe
