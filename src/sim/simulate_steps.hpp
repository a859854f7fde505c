// Several steps one after another, and what to say of them together.
#pragma once

#include <functional>
#include <vector>

#include "sim/simulate_step.hpp"

namespace lockstep::sim {

// `count` steps from options.step on: the same ranks, other draws. Spans of a step start where the step
// before ended. `after_step`, when given, is called with the number of steps done.
std::vector<StepResult> simulate_steps(const parallel::Layout& layout,
                                       const std::vector<parallel::Program>& programs,
                                       const StepOptions& options, int count,
                                       const std::function<void(int)>& after_step = {});

// Means of times, their split and the phases; sums of ops and wall_seconds; the rank that spent most in its
// own kernels over all steps; traces of all steps, joined by rank. One step is itself. Throws
// invalid_argument for none.
StepResult summary_of(std::vector<StepResult> steps);

}  // namespace lockstep::sim
