// Spans: what a worker did, on which stream, from when to when. A recorder holds them in memory while the run
// goes on and saves them as one compact file a worker; the launcher merges the files into one trace.
// The simulator writes the same spans for modelled ranks.
#pragma once

#include <array>
#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

namespace lockstep::observe {

// Where an op runs: the compute stream, a mesh axis' communication, or the host (data, logging, checkpoints).
// On `exposed` stand the waits of the compute stream for communication that nothing hid.
enum class Stream : uint8_t { compute, tp, cp, pp, dp, host, exposed };
inline constexpr int stream_count = 7;
inline constexpr std::array<std::string_view, stream_count> stream_names = {"compute", "tp",   "cp",     "pp",
                                                                            "dp",      "host", "exposed"};
constexpr std::string_view stream_name(Stream stream) { return stream_names[static_cast<size_t>(stream)]; }

// Whether a span is one end of a message between ranks; both ends carry the same message id.
enum class MessageEnd : uint8_t { none, sent, received };

struct Span {
  int64_t start_ns = 0;  // CLOCK_MONOTONIC, so that workers of one machine agree; simulated time starts at 0
  int64_t end_ns = 0;    // not before start_ns
  int64_t bytes = 0;     // payload of a communication, 0 for others
  uint64_t message = 0;  // id that both ends compute alike; read only when message_end is not none
  uint32_t name = 0;     // from SpanRecorder::name_id
  int32_t step = 0;
  int32_t chunk = -1;        // -1: none
  int32_t micro_batch = -1;  // -1: none
  Stream stream = Stream::compute;
  MessageEnd message_end = MessageEnd::none;

  bool operator==(const Span&) const = default;
};

// Now, on the clock of Span::start_ns.
int64_t monotonic_ns();

// A worker's spans as read from its file; every span's name is an index into `names`.
struct SpanFile {
  int rank = 0;
  int64_t dropped = 0;  // spans that came after the recorder was full
  std::vector<std::string> names;
  std::vector<Span> spans;
};

// Bounded memory: room for `capacity` spans is taken at the start (56 bytes each); when it is full, further
// spans are counted in dropped() and not kept. One thread records.
class SpanRecorder {
 public:
  SpanRecorder(int rank, size_t capacity);

  // The id of a name, the same for equal names. Meant for set-up: keep the id and record with it.
  uint32_t name_id(std::string_view name);

  void record(const Span& span) noexcept {
    if (spans_.size() < spans_.capacity()) {
      spans_.push_back(span);
    } else {
      ++dropped_;
    }
  }

  int rank() const { return rank_; }
  int64_t dropped() const { return dropped_; }
  const std::vector<Span>& spans() const { return spans_; }
  const std::vector<std::string>& names() const { return names_; }

  // Writes the span file (little-endian, a checksum at its end) by way of a temporary file. RunError when the
  // disk refuses.
  void save(const std::filesystem::path& path) const;

 private:
  int rank_;
  int64_t dropped_ = 0;
  std::vector<Span> spans_;
  std::vector<std::string> names_;
  std::unordered_map<std::string, uint32_t> ids_;
};

// Reads a span file. A missing, truncated, damaged or foreign file is a RunError that names it and what is
// wrong.
SpanFile load_spans(const std::filesystem::path& path);

}  // namespace lockstep::observe
