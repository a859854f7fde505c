// Several simulated steps as one result.
#pragma once

#include <vector>

#include "sim/simulate_step.hpp"

namespace lockstep::sim {

// Keeps sums alone, so that its memory does not grow with the steps (traces apart).
class SeveralSteps {
 public:
  // A further step of the same layout, programs and traced ranks.
  void add(StepResult step);

  const std::vector<double>& seconds() const { return seconds_; }  // of each step
  // Means over the steps, rank by rank where a figure has ranks; ops and wall_seconds are sums; slowest_rank
  // was furthest behind over all steps; spans of a step start where the step before ended. One step
  // is itself, to the bit. Throws invalid_argument for none.
  StepResult summary() const;

 private:
  StepResult total_;  // sums
  std::vector<double> seconds_;
};

}  // namespace lockstep::sim
