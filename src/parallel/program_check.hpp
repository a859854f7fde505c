// Proves of a set of programs what a run relies on, by walking them with the strictest rules: a send blocks
// until the peer receives it, a receive blocks until it is sent.
#pragma once

#include <vector>

#include "parallel/program.hpp"

namespace lockstep::parallel {

struct ProgramReport {
  std::vector<int> peak_live;  // by stage: most chunk x micro-batch activations held at once
};

// Throws RunError that names the stage and action when a micro-batch is missing or done twice, a pass lacks
// its input, activations are not freed, one of batch, reduce, norm, optimizer and gather is missing, done
// twice or before what it needs, or the programs deadlock.
ProgramReport check_step_programs(const std::vector<Program>& programs, int virtual_stages,
                                  int micro_batches);

}  // namespace lockstep::parallel
