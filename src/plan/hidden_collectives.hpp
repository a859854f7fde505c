// Collectives over dp_cp run beside the computation; what they hold up all the same, and what is slower while
// they go on.
#pragma once

#include "parallel/layout.hpp"
#include "plan/pipeline_time.hpp"
#include "plan/stage_costs.hpp"

namespace lockstep::plan {

// What of a layout says how often passes meet collectives beside them.
struct Overlap {
  config::ScheduleKind schedule = config::ScheduleKind::one_f_one_b;
  int stages = 1, chunks = 1, micro_batches = 1;
  bool scatters_every_micro_batch = false;
  bool gradients_persist = true;
  bool reshards_after_forward = true;
  double message = 0;  // seconds, while one is on its way
  Contention contention;
};
Overlap overlap_of(const parallel::Layout& layout, const Contention& contention, double message);

// Mean seconds for which a pass of one chunk keeps its stage beyond its own time: waiting for parameters
// (each gather hides behind the one pass before its use), or for earlier reductions, and what is slower
// beside communication; not at the step's ends.
struct HeldUp {
  double forward = 0, backward = 0;
};
// `first`: of a stage's first chunk.
HeldUp held_up(const Overlap& overlap, const ChunkCost& chunk, bool first);

// A chunk's times for the closed form, of `count` such chunks.
ChunkTimes chunk_times(const Overlap& overlap, const ChunkCost& chunk, bool first, int count = 1);

}  // namespace lockstep::plan
