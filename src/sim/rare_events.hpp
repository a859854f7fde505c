// Named, rare imperfections of a stage's lanes: lost packets, and pauses of a rank's host.
#pragma once

#include <cstdint>
#include <map>
#include <utility>
#include <vector>

#include "cost/transfer_prices.hpp"
#include "sim/jitter.hpp"

namespace lockstep::sim {

struct RareEvents {
  // A transfer between nodes loses a packet with this probability and then takes so much longer; drawn once a
  // group, or message. 0: never.
  double retransmit_probability = 0;
  double retransmit_seconds = 0;
  // By lane: whether the lane's group along an axis has ranks of several nodes; whether its message to the
  // stage so many further (cost::Transfer::stage_shift) leaves the node. Transfers that are not here lose
  // nothing.
  std::map<model::Axis, std::vector<bool>> group_leaves_node;
  std::map<int, std::vector<bool>> message_leaves_node;
  // Seconds by which lanes stop before an action, by its index in the program.
  std::map<size_t, std::vector<std::pair<size_t, double>>> pauses;

  bool any() const { return retransmit_probability > 0 || !pauses.empty(); }

  bool leaves_node(size_t lane, const cost::Transfer& transfer) const {
    return transfer.kind == model::OpKind::send ? at(message_leaves_node, transfer.stage_shift, lane)
                                                : at(group_leaves_node, transfer.axis, lane);
  }

  // What a packet lost by this op adds, of the lane that draws for its group, or sends the message.
  double retransmit(size_t lane, const cost::Transfer& transfer, LaneKey key, OpKey op) const {
    if (retransmit_probability <= 0 || !leaves_node(lane, transfer)) return 0;
    constexpr uint32_t apart = 0x9E3779B9u;  // from the draws of jitter
    const double uniform = jitter_bits(key, {op.a ^ apart, op.b}) * 0x1p-32;
    return uniform < retransmit_probability ? retransmit_seconds : 0;
  }

 private:
  template <class Key>
  static bool at(const std::map<Key, std::vector<bool>>& leaves, Key key, size_t lane) {
    const auto found = leaves.find(key);
    return found != leaves.end() && found->second[lane];
  }
};

}  // namespace lockstep::sim
