// Collectives over dp_cp run beside the computation; what they hold up all the same.
#pragma once

#include "parallel/layout.hpp"
#include "plan/pipeline_time.hpp"
#include "plan/stage_costs.hpp"

namespace lockstep::plan {

// Mean seconds for which a pass of one chunk keeps its stage beyond its own time: waiting for parameters
// (each gather hides behind the one pass before its use), or for earlier reductions; not at the step's ends.
struct HeldUp {
  double forward = 0, backward = 0;
};
std::vector<HeldUp> held_up(const parallel::Layout& layout, const StageCost& stage);  // by chunk

// Seconds from a stage's last backward until its last reductions are through. Chunks end in descending order,
// each some time before the next; scatters queue up behind one another.
double exposed_reduction(const StageCost& stage, const PipelineShape& shape);
// The same where no reduction begins before.
double reduction_seconds(const StageCost& stage);
// Seconds for which the first stage's forwards wait for parameters that are gathered from the step's start on
// (software.overlap_parameters): each chunk's, one after another, before its first forward.
double exposed_gather(const StageCost& stage, const PipelineShape& shape);

}  // namespace lockstep::plan
