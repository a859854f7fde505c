// Takes all stages through their programs.
#pragma once

#include <vector>

#include "sim/stage_run.hpp"

namespace lockstep::sim {

// `threads`, at least 1, share the stages: whoever is free takes one that may have something to do as far as
// it goes. Waiting only takes maxima over times that are known, so that neither their number nor their order
// changes a bit of the result. Throws RunError that names stages and actions when the programs wait for each
// other in vain, or a message is sent that nobody receives.
void run_to_end(std::vector<StageRun>& stages, Exchange& exchange, int threads);

}  // namespace lockstep::sim
