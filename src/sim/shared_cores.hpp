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
// min(1, C / N) only. Whoever waits in a collective or sends a message gives its core to another worker,
// which costs the core cluster.core_switch_seconds each time, the caches that the other finds cold included.
//
// What this leaves out: that an operating system stretches unevenly (a rank that computes while the others
// wait is not stretched at all).
//
// What a step's split says of stretched kernels is not what a trace shows. A worker that has waited waits on
// for a core, and then computes at full speed until it waits again; only a stretch of kernels longer than the
// system's time slice is interrupted itself. SharedStep::core_waits says where the wait for a core is spent.
#pragma once

#include <vector>

#include "sim/simulate_step.hpp"

namespace lockstep::sim {

// Seconds of a step that stretched kernels take beyond f = 1, mean over ranks, by where a worker spends them:
// in the wait before them (for tp, cp, messages and stages, dp), or in kernels, interrupted.
struct CoreWaits {
  double tp = 0, cp = 0, pp = 0, dp = 0, kernels = 0;

  void add(const CoreWaits& other, double share) {
    tp += share * other.tp;
    cp += share * other.cp;
    pp += share * other.pp;
    dp += share * other.dp;
    kernels += share * other.kernels;
  }
};

struct SharedStep {
  StepResult step;
  double stretch = 1;  // f; 1 where nothing is shared
  CoreWaits core_waits = {};
};

// What the ranks of a step keep cores busy with beside each other: on the busiest node, without what
// switching costs, and how many times a core is given to another there.
struct CoreWork {
  double seconds = 0;
  double switches = 0;
};
// `step`: simulate_step's result for the programs, with the same options.
CoreWork core_work(const parallel::Layout& layout, const std::vector<parallel::Program>& programs,
                   const StepOptions& options, const StepResult& step);

// simulate_step with what sharing cores adds, by the run's cluster.cores (0: exactly simulate_step).
// `wall_seconds` counts all tries.
SharedStep simulate_shared_step(const parallel::Layout& layout,
                                const std::vector<parallel::Program>& programs, const StepOptions& options);

}  // namespace lockstep::sim
