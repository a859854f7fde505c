#include "observe/trace_writer.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <fstream>

#include "observe/chrome_trace.hpp"
#include "observe/perfetto_trace.hpp"

namespace lockstep::observe {
namespace {

constexpr std::array<Stream, stream_count> shown_order = {
    Stream::compute, Stream::exposed, Stream::tp, Stream::cp, Stream::pp, Stream::dp, Stream::host};

// A lane while spans are dealt to it: the ends of those that the next one may lie inside.
struct Lane {
  Track track;
  std::vector<int64_t> open_ends;

  bool takes(const Span& span) {
    while (!open_ends.empty() && open_ends.back() <= span.start_ns) open_ends.pop_back();
    return open_ends.empty() || span.end_ns <= open_ends.back();
  }
};

std::vector<Lane> lanes_of(const SpanFile& file, Stream stream, const std::vector<uint32_t>& spans) {
  std::vector<Lane> lanes;
  for (const uint32_t index : spans) {
    const Span& span = file.spans[index];
    size_t lane = 0;
    while (lane < lanes.size() && !lanes[lane].takes(span)) ++lane;
    if (lane == lanes.size()) {
      lanes.emplace_back().track.stream = stream;
      lanes.back().track.lane = static_cast<int>(lane);
      lanes.back().track.name = stream_name(stream);
      if (lane > 0) lanes.back().track.name += fmt::format(" {}", lane + 1);
    }
    lanes[lane].open_ends.push_back(span.end_ns);
    lanes[lane].track.spans.push_back(index);
  }
  return lanes;
}

}  // namespace

std::vector<Track> tracks_of(const SpanFile& file) {
  std::array<std::vector<uint32_t>, stream_count> by_stream;
  for (size_t i = 0; i < file.spans.size(); ++i) {
    by_stream[static_cast<size_t>(file.spans[i].stream)].push_back(static_cast<uint32_t>(i));
  }
  std::vector<Track> out;
  for (const Stream stream : shown_order) {
    std::vector<uint32_t>& spans = by_stream[static_cast<size_t>(stream)];
    std::stable_sort(spans.begin(), spans.end(), [&](uint32_t i, uint32_t j) {
      const Span &a = file.spans[i], &b = file.spans[j];
      return a.start_ns != b.start_ns ? a.start_ns < b.start_ns : a.end_ns > b.end_ns;
    });
    for (Lane& lane : lanes_of(file, stream, spans)) {
      out.push_back(std::move(lane.track));
      out.back().place = static_cast<int>(out.size());
    }
  }
  return out;
}

SliceArguments::SliceArguments(const Span& span) {
  arguments_[count_++] = {0, span.step};
  if (span.chunk >= 0) arguments_[count_++] = {1, span.chunk};
  if (span.micro_batch >= 0) arguments_[count_++] = {2, span.micro_batch};
  if (span.bytes != 0) arguments_[count_++] = {3, span.bytes};
}

bool is_perfetto_name(const std::filesystem::path& path) {
  std::string ending = path.extension().string();
  std::transform(ending.begin(), ending.end(), ending.begin(),
                 [](char c) { return c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c; });
  return ending == ".pftrace";
}

bool holds_trace(const std::filesystem::path& path) {
  std::ifstream in(path, std::ios::binary);
  std::array<char, 64> bytes{};
  in.read(bytes.data(), bytes.size());
  const std::string_view begin(bytes.data(), static_cast<size_t>(in.gcount()));
  return begin.starts_with(ChromeTraceWriter::begin) || PerfettoTraceWriter::begins(begin);
}

std::unique_ptr<TraceWriter> open_trace(const std::filesystem::path& path, int64_t origin_ns) {
  if (is_perfetto_name(path)) return std::make_unique<PerfettoTraceWriter>(path, origin_ns);
  return std::make_unique<ChromeTraceWriter>(path, origin_ns);
}

void write_spans(TraceWriter& writer, const SpanFile& file) {
  if (file.dropped > 0) {
    SpanFile noted = file;
    noted.dropped = 0;
    noted.names.push_back(fmt::format("{} later spans not recorded: the recorder was full", file.dropped));
    Span note;
    note.stream = Stream::host;
    note.name = static_cast<uint32_t>(noted.names.size() - 1);
    for (const Span& span : file.spans) note.end_ns = std::max(note.end_ns, span.end_ns);
    note.start_ns = note.end_ns;
    note.step = file.spans.empty() ? 0 : file.spans.back().step;
    noted.spans.push_back(note);
    return write_spans(writer, noted);
  }
  for (const Track& track : tracks_of(file)) writer.track(file, track);
}

}  // namespace lockstep::observe
