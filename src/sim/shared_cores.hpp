// Steps of worker processes that share processor cores.
//
// With cluster.cores = C > 0 the workers of a node run on C cores. Where they are more, each gets a core for
// a part of the time alone: its kernels take f times as long. The operating system leaves no core idle while
// a worker could run, so f is the smallest at which the cores need not do more than they can within the step:
//
//   sum over the ranks of a node of what each keeps a core busy with <= C x step seconds(f),   f >= 1
//
// on every node, one f for all ranks; f = 1 on nodes of at most C ranks. A rank keeps a core busy with its
// kernels (their seconds at f = 1, without waiting for the batch) and its host's pauses, with its
// collectives, and with the messages that it sends. A collective's time is not stretched: measured between N
// workers on C cores it contains its share already, and of that time each worker can have had a core for
// min(1, C / N) only. Whoever waits in a collective or sends a message gives its core to another worker: each
// time this takes a core as long as the smallest all-gather between more than C workers that was measured
// takes one of each (nothing without one).
//
// What this leaves out: that kernels find colder caches after another worker, and that an operating system
// stretches unevenly (a rank that computes while the others wait is not stretched at all). The step's seconds
// are those of C busy cores; where they are booked, compute or waiting, is not what a trace shows.
#pragma once

#include <vector>

#include "sim/simulate_step.hpp"

namespace lockstep::sim {

struct SharedStep {
  StepResult step;
  double stretch = 1;  // f; 1 where nothing is shared
};

// simulate_step with what sharing cores adds, by the run's cluster.cores (0: exactly simulate_step).
// `wall_seconds` counts all tries.
SharedStep simulate_shared_step(const parallel::Layout& layout,
                                const std::vector<parallel::Program>& programs, const StepOptions& options);

}  // namespace lockstep::sim
