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
  double message = 0;                         // seconds between neighbouring stages

  int stages() const { return static_cast<int>(forward.size()); }
  int chunks() const { return static_cast<int>(forward.front().size()); }
};

// How long after a group's passes ([stage][chunk], one direction) of one chunk begin, its passes of the next
// one can: when the first micro-batch is through all stages and back, or the busiest stage is free.
double chunk_loop_seconds(const std::vector<std::vector<double>>& passes, int chunk, int group,
                          double message);

// From the first forward to the last backward, seconds. Good to a few percent, not exact: the simulator is.
double pipeline_seconds(const PipelineShape& shape);

}  // namespace lockstep::plan
