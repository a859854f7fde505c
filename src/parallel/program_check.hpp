// Proves of a set of programs what a run relies on, by walking them with the strictest rules: a send blocks
// until the peer receives it, a receive blocks until it is sent.
#pragma once

#include <vector>

#include "parallel/program.hpp"

namespace lockstep::parallel {

struct ProgramReport {
  std::vector<int> peak_live;  // by stage: most chunk x micro-batch activations held at once
};

// `programs`: one a stage. Throws RunError that names the stage and action when a micro-batch is missing or
// done twice, a pass lacks its input or its parameters, activations or gathered parameters are not freed, a
// reduction holds other micro-batches than the layout's rounds say, one of batch, reductions, norm, optimizer
// and gathers is missing, done twice or before what it needs, or the programs deadlock.
ProgramReport check_step_programs(const Layout& layout, const std::vector<Program>& programs);

}  // namespace lockstep::parallel
