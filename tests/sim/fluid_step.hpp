// One training step of every rank, with collectives and messages executed flow by flow on the links of the
// cluster (fluid_collective.hpp): what happens at the same time shares links because its flows do, at every
// moment max-min fairly, and by no other rule. The truth for what the simulator says of contention.
//
// Streams follow the rules of the step program (parallel/program.hpp, sim/stage_run.hpp): a collective starts
// when all its ranks have come to it and ends for all at once. Kernels take 1 + communication_slowdown times
// as long while the rank has a data-parallel collective in its queue or a message on its way. Nothing is
// drawn, and no rank is slow.
#pragma once

#include <vector>

#include "parallel/program.hpp"

namespace lockstep::tests {

struct FluidResult {
  double seconds = 0;
  std::vector<double> finish;  // by rank
};

FluidResult fluid_step(const parallel::Layout& layout, const std::vector<parallel::Program>& programs);

}  // namespace lockstep::tests
