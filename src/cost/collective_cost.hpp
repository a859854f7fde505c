// What a collective costs on a path: rounds, each with a latency, and the share of the message that passes
// the slowest link. Thakur, Rabenseifner, Gropp, "Optimization of Collective Communication Operations in
// MPICH", IJHPCA 19(1), 2005, section 4 (there: alpha per round, beta per byte).
#pragma once

#include <cstdint>
#include <functional>

#include "cluster/network.hpp"
#include "collective/steps.hpp"
#include "model/op.hpp"

namespace lockstep::cost {

struct CollectiveCost {
  double rounds = 0;
  double share = 0;  // of the op's bytes (whole tensor), sent over each link in all rounds together

  double seconds(int64_t bytes, const cluster::Path& slowest_hop) const {
    return rounds * slowest_hop.latency + share * static_cast<double>(bytes) * slowest_hop.seconds_per_byte;
  }
};

// Seconds of any algorithm, summed from its step list: rounds follow one another; in a round every rank sends
// what it has to send after one latency, and receives as much, so that the busiest rank sets the round's
// time. `path(from, to)` gives the way between members of the group.
double step_list_seconds(const collective::StepList& list, int64_t bytes,
                         const std::function<cluster::Path(int, int)>& path);

// Closed form of the ring of `ranks`: all-gather and reduce-scatter take N-1 rounds of 1/N of the message
// each, an all-reduce both after one another. Equal to step_list_seconds of collective::ring when every hop
// is the slowest (tests/cost holds them against each other).
CollectiveCost ring_cost(model::OpKind kind, int ranks);

}  // namespace lockstep::cost
