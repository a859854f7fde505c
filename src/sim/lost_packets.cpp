#include "sim/lost_packets.hpp"

#include <map>
#include <tuple>

#include "sim/imperfection.hpp"
#include "sim/op_transfer.hpp"

namespace lockstep::sim {

namespace {

// Lanes of a stage by the transfer that they draw for: it leaves the node, and they are the first of their
// group, or send it.
class Drawers {
 public:
  Drawers(const parallel::Layout& layout, const std::vector<int>& ranks, const RareEvents& events)
      : layout_(layout), ranks_(ranks), events_(events) {}

  const std::vector<size_t>& of(const cost::Transfer& transfer) {
    const auto [known, is_new] =
        known_.try_emplace({transfer.kind == model::OpKind::send, transfer.axis, transfer.stage_shift});
    if (!is_new) return known->second;
    for (size_t lane = 0; lane < ranks_.size(); ++lane) {
      if (events_.leaves_node(lane, transfer) && group_of(transfer, ranks_[lane]).front() == ranks_[lane]) {
        known->second.push_back(lane);
      }
    }
    return known->second;
  }
  std::vector<int> group_of(const cost::Transfer& transfer, int rank) const {
    if (transfer.kind == model::OpKind::send) return {rank};
    return layout_.mesh().group(transfer.axis, rank);
  }

 private:
  const parallel::Layout& layout_;
  const std::vector<int>& ranks_;
  const RareEvents& events_;
  std::map<std::tuple<bool, parallel::Axis, int>, std::vector<size_t>> known_;
};

void count_lost(const parallel::Layout& layout, const parallel::Program& program, const StepOptions& options,
                LostPackets& lost) {
  std::vector<int> ranks;
  std::vector<LaneKey> keys;
  for (int rank = 0; rank < layout.mesh().size(); ++rank) {
    if (layout.mesh().coordinates(rank).pp != program.stage) continue;
    ranks.push_back(rank);
    keys.push_back(lane_key(static_cast<uint64_t>(options.seed), options.step, rank));
  }
  const RareEvents events = rare_events(layout, program, ranks, options);
  Drawers drawers(layout, ranks, events);
  uint32_t index = 0;
  for (const parallel::Action& action : program.actions) {
    for (const model::Op& op : parallel::action_ops(layout, program.stage, action)) {
      const OpKey key = op_key(index++);
      const auto transfer = transfer_of(layout, program.stage, action, op);
      if (!transfer) continue;
      for (const size_t lane : drawers.of(*transfer)) {
        if (events.retransmit(lane, *transfer, keys[lane], key) <= 0) continue;
        ++lost.count;
        for (const int rank : drawers.group_of(*transfer, ranks[lane])) {
          ++lost.by_rank[static_cast<size_t>(rank)];
        }
      }
    }
  }
}

}  // namespace

LostPackets lost_packets(const parallel::Layout& layout, const std::vector<parallel::Program>& programs,
                         const StepOptions& options) {
  LostPackets lost;
  lost.by_rank.resize(static_cast<size_t>(layout.mesh().size()));
  if (!options.jitter || options.retransmit_probability <= 0 || options.retransmit_seconds <= 0) return lost;
  for (const parallel::Program& program : programs) count_lost(layout, program, options, lost);
  return lost;
}

}  // namespace lockstep::sim
