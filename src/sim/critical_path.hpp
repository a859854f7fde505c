// The critical path of a step: the chain of work and transfers, through all ranks, of which each began when
// the one before it ended, up to the end of the step. Shortening anything that is not on it changes nothing.
//
// It is followed forwards: every lane carries what the path to its present moment consists of. Where a lane
// waits for others it takes over the path of the last to come. This costs several times a plain simulation,
// so it is done on request.
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <string_view>
#include <vector>

#include "model/op.hpp"
#include "sim/exchange.hpp"

namespace lockstep::sim {

struct QueuedCollective;

enum class PathKind : uint8_t { data, gemm, attention, memory, optimizer, tp, cp, pp, dp, pause, host };
inline constexpr size_t path_kinds = 11;
inline constexpr std::array<std::string_view, path_kinds> path_kind_names = {
    "data", "gemm", "attention", "memory", "optimizer", "tp", "cp", "pp", "dp", "pause", "host"};

// Of collectives and messages, packets that they lose included.
PathKind transfer_kind(model::Axis axis);

struct CriticalPath {
  std::array<double, path_kinds> seconds{};  // they add up to the step
  struct Rank {
    int rank = 0;
    double seconds = 0;  // of its own work on the path
  };
  std::vector<Rank> ranks;  // that the path runs through, most seconds first
  // All ranks' waiting for a batch before the step begins is data, and no rank's work.
};

// What the path to a moment consists of.
struct PathState {
  std::array<double, path_kinds> seconds{};
  // Own work since the path came to `rank`; what was before stands in a chain of earlier ranks.
  int rank = -1;
  double since = 0;
  int earlier = -1;
};

class PathBook {
 public:
  // `ranks`: global rank by stage and lane.
  explicit PathBook(std::vector<std::vector<int>> ranks);

  // The lane works on its own.
  void work(int stage, size_t lane, PathKind kind, double seconds);
  // The lanes, counted from `first`, wait for `last`, one of them, and then spend `seconds` together.
  void meet(int stage, size_t first, const std::vector<size_t>& lanes, size_t last, PathKind kind,
            double seconds);

  const PathState& at(int stage, size_t lane) const { return lanes_[static_cast<size_t>(stage)][lane]; }
  void set(int stage, size_t lane, const PathState& state) {
    lanes_[static_cast<size_t>(stage)][lane] = state;
  }
  static PathState with(PathState state, PathKind kind, double seconds);

  // Paths to the arrivals of a message, by lane; to the start of a queued collective, by row.
  void put_message(const MessageKey& key, std::vector<PathState> states) {
    messages_[key] = std::move(states);
  }
  std::vector<PathState> take_message(const MessageKey& key);
  void put_queued(const QueuedCollective* queued, std::vector<PathState> states);
  const std::vector<PathState>& queued(const QueuedCollective* queued) const { return queued_.at(queued); }
  // Of a meeting of stages: the path of the last to come, by lane.
  void enter(const Exchange::MeetingKey& key, int stage, const std::vector<double>& clock);
  const std::vector<PathState>& meeting(const Exchange::MeetingKey& key) const;

  // The path to the end of this lane.
  CriticalPath path_of(int stage, size_t lane) const;

 private:
  struct Earlier {  // own work of a rank that the path has left
    int before = -1;
    int rank = 0;
    double seconds = 0;
  };
  struct Meeting {
    std::vector<double> latest;
    std::vector<PathState> states;
  };
  void collect_garbage();

  std::vector<std::vector<int>> ranks_;
  std::vector<std::vector<PathState>> lanes_;
  std::map<MessageKey, std::vector<PathState>> messages_;
  std::map<const QueuedCollective*, std::vector<PathState>> queued_;
  std::map<Exchange::MeetingKey, Meeting> meetings_;
  std::vector<Earlier> earlier_;
  size_t most_earlier_ = 1 << 20;
};

}  // namespace lockstep::sim
