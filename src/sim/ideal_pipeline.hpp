// What the schedule alone costs: the same passes and messages on one lane a stage, without jitter.
#pragma once

#include <algorithm>
#include <vector>

#include "sim/priced_program.hpp"

namespace lockstep::sim {

// The pipeline phase runs from the first forward to the last backward of any stage.
struct IdealPipeline {
  double window = 0;         // seconds of the phase
  std::vector<double> busy;  // by stage: seconds in forward and backward

  // Idle share of the phase, mean over stages: (p-1)/(m+p-1) for GPipe and 1F1B with equal stages (Huang et
  // al., arXiv:1811.06965), (p-1)/(V m + p-1) interleaved with m a multiple of p (Narayanan et al.,
  // arXiv:2104.04473, where it is given over compute: (p-1)/(V m)).
  double bubble_fraction() const;
  // Seconds. A stage that is never idle has 0: its passes may sum to more than the window by rounding.
  double idle(size_t stage) const { return std::max(0.0, window - busy[stage]); }
};

// Programs without passes give an empty phase.
IdealPipeline ideal_pipeline(const std::vector<const PricedProgram*>& programs, PricedProgram::Free free);

}  // namespace lockstep::sim
