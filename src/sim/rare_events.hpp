// Named, rare imperfections of a stage's lanes: lost packets, and pauses of a rank's host.
#pragma once

#include <cstdint>
#include <map>
#include <utility>
#include <vector>

#include "model/op.hpp"
#include "sim/jitter.hpp"

namespace lockstep::sim {

struct RareEvents {
  // A transfer between nodes loses a packet with this probability and then takes so much longer; drawn once a
  // group, or message. 0: never.
  double retransmit_probability = 0;
  double retransmit_seconds = 0;
  // By lane and axis: whether the lane's group has ranks of several nodes; of pp: whether its messages to
  // either neighbour leave the node.
  std::map<model::Axis, std::vector<bool>> leaves_node;
  // Seconds by which lanes stop before an action, by its index in the program.
  std::map<size_t, std::vector<std::pair<size_t, double>>> pauses;

  bool any() const { return retransmit_probability > 0 || !pauses.empty(); }

  // What a packet lost by this op adds, of the lane that draws for its group.
  double retransmit(size_t lane, model::Axis axis, LaneKey key, OpKey op) const {
    if (retransmit_probability <= 0 || !leaves_node.at(axis)[lane]) return 0;
    constexpr uint32_t apart = 0x9E3779B9u;  // from the draws of jitter
    const double uniform = jitter_bits(key, {op.a ^ apart, op.b}) * 0x1p-32;
    return uniform < retransmit_probability ? retransmit_seconds : 0;
  }
};

}  // namespace lockstep::sim
