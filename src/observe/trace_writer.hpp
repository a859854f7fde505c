// What a trace shows of workers' spans, whatever its format: a process a rank, tracks of slices for its
// streams, and an arrow from the send of a message to its receive.
#pragma once

#include <array>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "observe/span.hpp"

namespace lockstep::observe {

// Spans of one stream that lie beside each other or inside each other, as viewers need it. Spans that only
// overlap (two messages under way at once) go to further lanes of their stream.
struct Track {
  Stream stream = Stream::compute;
  int lane = 0;                 // of its stream
  int place = 0;                // among the rank's tracks, as a viewer should show them
  std::string name;             // "pp"; of a further lane "pp 2"
  std::vector<uint32_t> spans;  // indices into SpanFile::spans by start, a span before those inside it
};

// In the order of `place`: what compute waited for right under compute. Spans need not be in any order.
std::vector<Track> tracks_of(const SpanFile& file);

// What a viewer shows of a slice beside its name: step, and chunk, micro_batch, bytes where they are given.
inline constexpr std::array<std::string_view, 4> argument_names = {"step", "chunk", "micro_batch", "bytes"};
struct SliceArgument {
  size_t name = 0;  // index into argument_names
  int64_t value = 0;
};
class SliceArguments {
 public:
  explicit SliceArguments(const Span& span);
  const SliceArgument* begin() const { return arguments_.data(); }
  const SliceArgument* end() const { return arguments_.data() + count_; }

 private:
  std::array<SliceArgument, argument_names.size()> arguments_;
  size_t count_ = 0;
};

// Chrome's and Perfetto's viewers give id 0 to the idle process and thread, so both count from 1. Ids of
// threads are a rank's own.
inline int process_id(int rank) { return rank + 1; }
inline int thread_id(const Track& track) {
  return static_cast<int>(track.stream) + 1 + stream_count * track.lane;
}

// A trace file being written. Every failure is a RunError; the file is at its place, and whole, only after
// close().
class TraceWriter {
 public:
  virtual ~TraceWriter() = default;
  TraceWriter(const TraceWriter&) = delete;
  TraceWriter& operator=(const TraceWriter&) = delete;

  // Names a rank ("rank 3  tp1 pp1 dp0"); ranks are sorted by number. Once a rank, before its tracks.
  virtual void process(int rank, std::string_view name) = 0;
  // Once a track, with all its spans.
  virtual void track(const SpanFile& file, const Track& track) = 0;
  virtual void close() = 0;

 protected:
  TraceWriter() = default;
};

// Perfetto's own format for a name that ends in .pftrace or .PFTRACE, Chrome's JSON for any other. Times are
// nanoseconds; `origin_ns` is subtracted from each.
std::unique_ptr<TraceWriter> open_trace(const std::filesystem::path& path, int64_t origin_ns = 0);
bool is_perfetto_name(const std::filesystem::path& path);

// Whether the file begins as open_trace's do.
bool holds_trace(const std::filesystem::path& path);

// All spans of a worker's file. Spans that the recorder had to drop show as one slice named so at the end.
void write_spans(TraceWriter& writer, const SpanFile& file);

}  // namespace lockstep::observe
