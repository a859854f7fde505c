// From the lanes of all stages to the figures of the step.
#pragma once

#include <vector>

#include "sim/ideal_pipeline.hpp"
#include "sim/simulate_step.hpp"
#include "sim/stage_run.hpp"

namespace lockstep::sim {

// Everything but bubble_fraction, ops, traces and wall_seconds.
//
// A rank's seconds are split so: what its timeline booked as data, tp, cp and optimizer is that; the rest of
// what it was busy is compute, its host's pauses included; barrier is the time after it was done. What it
// waited for messages, stages and data-parallel collectives is bubble as far as the schedule alone leaves its
// stage idle (`ideal`: the same passes with free messages); waiting beyond that is pp, and then dp.
StepResult collect_result(const parallel::Mesh& mesh, const LaneGrid& grid, const std::vector<StageRun>& runs,
                          const IdealPipeline& ideal);

// All ranks wait so long for their batch before the step begins: everything comes later.
void wait_for_batch(StepResult& result, double seconds);

// By behind_seconds, which are there; the first of equal ones.
int furthest_behind(const StepResult& result);

}  // namespace lockstep::sim
