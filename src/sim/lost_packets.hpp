// Which ranks' transfers lose packets in a step.
#pragma once

#include <cstdint>
#include <vector>

#include "parallel/layout.hpp"
#include "parallel/program.hpp"
#include "sim/simulate_step.hpp"

namespace lockstep::sim {

struct LostPackets {
  int64_t count = 0;
  std::vector<int> by_rank;  // that its groups' collectives and the messages that it sends have lost
};
// Of this step, drawn as the simulation draws them.
LostPackets lost_packets(const parallel::Layout& layout, const std::vector<parallel::Program>& programs,
                         const StepOptions& options);

}  // namespace lockstep::sim
