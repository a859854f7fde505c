// What makes a step longer than it would be if all ranks, links and ops were as the run file's figures have
// them.
#pragma once

#include <string>
#include <vector>

#include "sim/lost_packets.hpp"

namespace lockstep::sim {

struct Cause {
  std::string_view name;   // such as "throttled nodes"
  std::string figure;      // how much of it there is, such as "x1.5"
  std::vector<int> ranks;  // that have it, ascending
  void (*remove)(StepOptions&) = nullptr;
};

// Those in force: that at least one rank has in this step.
std::vector<Cause> causes(const parallel::Layout& layout, const StepOptions& options,
                          const LostPackets& lost);

}  // namespace lockstep::sim
