// Closed-form step time of a layout: no simulation, no jitter. Agrees with sim::simulate_step without jitter
// within a few percent on ordinary layouts (tests/plan says how closely).
#pragma once

#include "cost/step_figures.hpp"
#include "parallel/program.hpp"

namespace lockstep::plan {

struct StepTime {
  double seconds = 0;
  double bubble_fraction = 0;  // idle share of the pipeline phase with free communication
  cost::StepSplit split;       // barrier is 0: without jitter nobody is late at the end
};

// `programs`: the layout's, one a stage.
StepTime step_time(const parallel::Layout& layout, const std::vector<parallel::Program>& programs);

}  // namespace lockstep::plan
