// Takes all stages through their programs.
#pragma once

#include <vector>

#include "sim/stage_run.hpp"

namespace lockstep::sim {

// Throws RunError that names stages and actions when the programs wait for each other in vain, or a message
// is sent that nobody receives.
void run_to_end(std::vector<StageRun>& stages, const Exchange& exchange);

}  // namespace lockstep::sim
