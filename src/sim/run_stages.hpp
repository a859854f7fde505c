// Takes all stages through their programs.
#pragma once

#include <memory>
#include <vector>

#include "sim/stage_run.hpp"

namespace lockstep::sim {

// Throws RunError that names a stage and action when the programs wait for each other in vain.
void run_to_end(std::vector<StageRun>& stages);

}  // namespace lockstep::sim
