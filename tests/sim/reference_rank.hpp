// A rank of the plain simulator: its program as a flat list of ops, and where it stands.
#pragma once

#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <tuple>
#include <vector>

#include "parallel/program.hpp"
#include "sim/jitter.hpp"
#include "sim/reference_simulator.hpp"
#include "sim/reference_timeline.hpp"

namespace lockstep::tests {

using parallel::Action;
using MessageId = std::tuple<bool, int, int>;  // forward, chunk, micro-batch, at the receiver

struct FlatOp {
  const Action* action;
  model::Op op;
  bool first_of_action, last_of_action, none;  // none: the action has no op
};

// A collective that some ranks of a group have reached.
struct Gathering {
  size_t arrived = 0, ended = 0;
};

struct Rank {
  int id = 0;
  parallel::Coordinates at;
  double speed = 1;  // its kernels take so many times as long
  sim::LaneKey key;
  std::vector<FlatOp> ops;
  std::vector<uint32_t> index;  // of each op in the program
  size_t next = 0;
  bool waited = false;  // the present action's waiting is over
  const Action* pause_at = nullptr;
  bool paused = false;
  double clock = 0;
  double pass_start = 0;
  // Data-parallel stream: positions in the program of what is queued, ascending; the head is in a gathering.
  std::deque<size_t> dp_queue;
  double dp_free = 0;
  std::unique_ptr<ReferenceTimeline> timeline;
  struct Open {
    double told = -1;  // the end that was told last
    std::function<void()> happens;
  };
  std::map<size_t, Open> open;   // work of the timeline, and what happens when it ends
  std::deque<size_t> dp_places;  // of the same in the timeline
  bool blocked_on_dp = false;
  size_t blocked_until = 0;         // this position is through
  std::map<int, size_t> unsharded;  // by chunk: its latest unshard's last collective
  size_t reduced = 0;               // the latest reduction's
  bool any_reduced = false;
  bool blocked_on_message = false;
  std::set<MessageId> posted;
  std::map<MessageId, double> arrived;
  ReferenceRank out;
};

inline bool is_backward(parallel::ActionKind kind) {
  return kind == parallel::ActionKind::backward || kind == parallel::ActionKind::backward_input ||
         kind == parallel::ActionKind::backward_weight;
}

// The collective beside the computation that an action has to wait for.
inline std::optional<size_t> needed_position(const parallel::Layout& layout, const Rank& r, const Action& a) {
  using Kind = parallel::ActionKind;
  if (a.kind == Kind::forward || is_backward(a.kind)) {
    const auto found = r.unsharded.find(a.chunk);
    if (found != r.unsharded.end()) return found->second;
  }
  const bool one_at_a_time = layout.zero() >= 2 || layout.rounds() > 1;
  if (a.kind == Kind::reduce_gradients && one_at_a_time && r.any_reduced) return r.reduced;
  const bool all =
      a.kind == Kind::gather_gradients || a.kind == Kind::sum_tied_gradients || a.kind == Kind::gradient_norm;
  if (all && !r.dp_queue.empty()) return r.dp_queue.back();
  return std::nullopt;
}

}  // namespace lockstep::tests
