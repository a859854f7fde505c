// Several simulated steps as one result.
#pragma once

#include <vector>

#include "sim/simulate_step.hpp"

namespace lockstep::cli {

class SeveralSteps {
 public:
  void add(sim::StepResult result);

  const std::vector<double>& seconds() const { return seconds_; }  // of each step
  // Means over the steps, rank by rank where a figure has ranks; ops and wall_seconds are sums; traces follow
  // one another in time. At least one step has been added.
  sim::StepResult summary() const;

 private:
  sim::StepResult total_;  // sums
  std::vector<double> seconds_;
};

}  // namespace lockstep::cli
