// One training step of every rank of a modelled cluster, op by op: the step program priced.
//
// The ranks of a pipeline stage run as vector lanes (sim/lanes.hpp, sim/stage_run.hpp has the rules); stages
// run in turn, each as far as what it waits for allows. Waiting only ever takes maxima over times that are
// already known, so the order in which stages run does not change a bit of the result.
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

#include "cost/step_figures.hpp"
#include "observe/span.hpp"
#include "parallel/program.hpp"

namespace lockstep::sim {

struct SlowRank {
  int rank = 0;
  double factor = 1;  // its kernels take so many times as long
};

struct StepOptions {
  bool jitter = true;
  double op_jitter = 0.02;    // relative standard deviation of one op's time; collectives and messages too
  double rank_jitter = 0.01;  // relative standard deviation of a rank's time for the same kernels
  uint64_t seed = 1;
  int step = 0;                   // draws of ops differ between steps, a rank's speed does not
  std::vector<SlowRank> slow;     //
  std::vector<int> traced_ranks;  // whose spans are wanted; any order, each once
};
StepOptions step_options(const config::SimulateConfig& simulate);

struct Phase {
  std::string_view name;  // data, forward, backward, optimizer, barrier
  double start = 0;       // seconds: its first start
  double end = 0;         // and its last end, over all ranks
};

struct StepResult {
  double seconds = 0;  // until the last rank is done
  cost::StepSplit split;
  double bubble_fraction = 0;  // see IdealPipeline
  int64_t ranks = 0;
  int64_t ops = 0;  // executed, over all ranks
  // The rank that spent most time in its own kernels: whom the others wait for.
  int slowest_rank = 0;
  double seconds_p50 = 0, seconds_p99 = 0;  // over ranks, when each was done
  std::vector<Phase> phases;                // those that the programs have, and barrier
  std::vector<double> finish_seconds;       // by rank
  std::vector<double> kernel_seconds;       // by rank: compute, optimizer and data
  std::vector<observe::SpanFile> traces;    // by rank, ascending
  double wall_seconds = 0;                  // that this evaluation took
};

// `programs`: one a stage, as parallel::build_step_programs makes them; any other list is simulated as it
// stands. Throws UsageError for a rank that is not there, RunError when the programs wait for each other in
// vain.
StepResult simulate_step(const parallel::Layout& layout, const std::vector<parallel::Program>& programs,
                         const StepOptions& options);

}  // namespace lockstep::sim
