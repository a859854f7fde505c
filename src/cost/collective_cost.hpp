// What a collective costs on a path: rounds, each with a latency, and the share of the message that passes
// the slowest link. Ring algorithms; Thakur, Rabenseifner, Gropp, "Optimization of Collective Communication
// Operations in MPICH", IJHPCA 19(1), 2005, section 4 (there: alpha per round, beta per byte).
#pragma once

#include <cstdint>

#include "cluster/network.hpp"
#include "model/op.hpp"

namespace lockstep::cost {

struct CollectiveCost {
  double rounds = 0;
  double share = 0;  // of the op's bytes (whole tensor), sent over each link in all rounds together

  double seconds(int64_t bytes, const cluster::Path& slowest_hop) const {
    return rounds * slowest_hop.latency + share * static_cast<double>(bytes) * slowest_hop.seconds_per_byte;
  }
};

// The ring of `ranks`: all-gather and reduce-scatter take N-1 rounds of 1/N of the message each, an
// all-reduce both after one another. Equal to summing the ring's step list, round by round (tests/cost).
CollectiveCost ring_cost(model::OpKind kind, int ranks);

}  // namespace lockstep::cost
