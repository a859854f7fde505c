// Closed forms of how long a step takes, from the times of its stages and chunks. Single plans and the search
// use the same: it allocates nothing, and stages or chunks that are alike are taken together.
//
// With equal stages, chunk times f and b and free messages a pipeline takes (V m + p - 1)(f + b): Huang et
// al., arXiv:1811.06965 (GPipe), Narayanan et al., arXiv:2006.09503 (1F1B) and arXiv:2104.04473
// (interleaved); zero-bubble H1 with input and weight halves b and w: m (f + b + w) + (p - 1)(f + b - w), Qi
// et al., arXiv:2401.10241, table 2. Here stages may differ and messages take time; what then bounds a
// schedule is its busiest stage, or a loop in which a pass waits for one that waits for it: with k
// micro-batches under way, a loop of length L lets a micro-batch through every L / k.
#pragma once

#include <span>

#include "config/run_file.hpp"

namespace lockstep::plan {

// Of `count` neighbouring chunks of a stage that are alike; seconds.
struct ChunkTimes {
  int count = 1;
  double forward = 0, backward_input = 0, backward_weight = 0;  // one micro-batch's passes
  // What else a pass keeps its stage from the next one, after its output is there: mean a pass.
  double forward_held = 0, backward_held = 0;
  // How much longer a pass takes with a collective over dp_cp beside it throughout.
  double forward_beside = 0, backward_beside = 0;
  bool gathers_again = false;        // its parameters, before each group's passes
  double gathers = 0, scatters = 0;  // seconds of all of a step, on the stage's data-parallel stream
  double reduce = 0,
         reduce_dp = 0;  // of the last reduction: what runs before the scatter; the scatter, beside
  double gather_gradients = 0;
  double sum_tied = 0;
  double update = 0;  // the optimizer's kernel
  double gather = 0;  // of the parameters

  double backward() const { return backward_input + backward_weight; }
  bool operator==(const ChunkTimes&) const = default;
};

// Of `count` neighbouring stages that are alike.
struct StageTimes {
  int count = 1;
  std::span<const ChunkTimes> chunks;  // in order; their counts sum to the chunks of a stage
  double load = 0;                     // the batch
  double norm = 0, norm_pp = 0;        // the norm's kernel and collectives over dp and tp; over pp
};

struct StepShape {
  config::ScheduleKind schedule = config::ScheduleKind::one_f_one_b;
  int stages = 1, chunks = 1;  // pipeline positions; chunks that each holds
  int micro_batches = 1;
  bool zero_3 = false;                   // each chunk's parameters are gathered before its passes
  bool gathers_at_start = false;         // parameters are gathered beside the step's first forwards,
  bool gathers_after_update = false;     // or after the optimizer
  bool overlaps_gradients = true;        // reductions begin beside backwards
  double message = 0;                    // between neighbouring stages
  std::span<const StageTimes> of_stage;  // in order; their counts sum to `stages`
};

// From the first forward to the last backward, seconds. Good to a few percent, not exact: the simulator is.
double pipeline_seconds(const StepShape& shape);

// Seconds that stages take, one beside another.
struct OfStages {
  double longest = 0, mean = 0;
  void take(double seconds, double share_of_stages) {
    longest = longest < seconds ? seconds : longest;
    mean += share_of_stages * (seconds > 0 ? seconds : 0);
  }
};

// What comes before and after the pipeline.
struct StepEnds {
  double load = 0;          // the batch
  double first_gather = 0;  // of the first chunk's parameters, before the first forward
  OfStages reduced;         // after the last backward, until gradients are reduced
  double reducing = 0;      // mean, from a stage's own last backward: part of it lies before the first's
  OfStages gathered;        // reduced gradients, to all
  double tied = 0;          //
  double norm = 0;          // the norm's kernel and its collectives over dp and tp
  double norm_pp = 0;       //
  OfStages optimizer;       // kernels and gathers

  double total() const {
    return load + first_gather + reduced.longest + gathered.longest + tied + norm + norm_pp +
           optimizer.longest;
  }
};
StepEnds step_ends(const StepShape& shape);

// Both together.
double step_seconds(const StepShape& shape);

}  // namespace lockstep::plan
