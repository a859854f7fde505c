// Closed forms of how long a pipeline's forwards and backwards take.
//
// With equal stages, chunk times f and b and free messages they give (V m + p - 1)(f + b): Huang et al.,
// arXiv:1811.06965 (GPipe), Narayanan et al., arXiv:2006.09503 (1F1B) and arXiv:2104.04473 (interleaved).
// Here stages may differ and messages take time; what then bounds a schedule is its busiest stage, or a loop
// in which a pass waits for one that waits for it: with k micro-batches under way, a loop of length L lets a
// micro-batch through every L / k.
#pragma once

#include <vector>

#include "config/run_file.hpp"

namespace lockstep::plan {

struct PipelineShape {
  config::ScheduleKind schedule = config::ScheduleKind::one_f_one_b;
  int micro_batches = 1;
  std::vector<std::vector<double>> forward;   // [stage][chunk], seconds
  std::vector<std::vector<double>> backward;  //
  // What else a pass keeps its stage from the next one, after its output is there: mean seconds a pass,
  // [stage][chunk]; empty: nothing.
  std::vector<std::vector<double>> forward_held, backward_held;
  double message = 0;  // seconds between neighbouring stages

  int stages() const { return static_cast<int>(forward.size()); }
  int chunks() const { return static_cast<int>(forward.front().size()); }
};

// How long after a group's backwards of one chunk begin, its backwards of the next one can: when the first
// micro-batch is through all stages and back, or the busiest stage is free.
double backward_loop_seconds(const PipelineShape& shape, int chunk, int group);

// The same of forwards.
double forward_loop_seconds(const PipelineShape& shape, int chunk, int group);

// From the first forward to the last backward, seconds. Good to a few percent, not exact: the simulator is.
double pipeline_seconds(const PipelineShape& shape);

}  // namespace lockstep::plan
