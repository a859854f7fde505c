// One training step of every rank of a modelled cluster, op by op: the step program priced.
//
// The ranks of a pipeline stage run as vector lanes (sim/lanes.hpp, sim/stage_run.hpp has the rules); stages
// run in turn or on several threads (sim/run_stages.hpp), each as far as what it waits for allows.
#pragma once

#include <algorithm>
#include <cstdint>
#include <memory>
#include <string_view>
#include <vector>

#include "cost/step_figures.hpp"
#include "observe/span.hpp"
#include "parallel/program.hpp"
#include "sim/critical_path.hpp"
#include "sim/network_prices.hpp"

namespace lockstep::sim {

// What varies (config/run_file.hpp has the figures), and what is wanted. Without `jitter` nothing is drawn:
// named slow ranks and links, and the hour's heat, remain.
struct StepOptions : config::SimulateConfig {
  int step = 0;                   // draws of ops differ between steps, a rank's speed does not
  std::vector<int> traced_ranks;  // whose spans are wanted; any order, each once
  bool contention = true;         // false: what goes on at the same time slows nothing down
  bool critical_path = false;     // wanted; takes several times as long, and one thread
  // Of the same layout; used where its links and seed are these. Null: solved for this step.
  std::shared_ptr<NetworkPrices> network;
  int threads = 1;             // any number gives the same bits
  std::vector<int> unpaused;   // ranks whose hosts never pause: "if this rank were as fast as others"
  std::vector<PathKind> free;  // of these kinds nothing takes any time: "if this were free"

  bool is_free(PathKind kind) const { return std::find(free.begin(), free.end(), kind) != free.end(); }
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
  // The rank that is furthest behind (behind_seconds), the first of equal ones: whom the others wait for.
  int slowest_rank = 0;
  double seconds_p50 = 0, seconds_p99 = 0;  // over ranks, when each was done
  std::vector<Phase> phases;                // those that the programs have, and barrier
  std::vector<double> finish_seconds;       // by rank
  std::vector<double> kernel_seconds;       // by rank: of forward, backward and optimizer
  std::vector<double> pause_seconds;        // by rank: of its host; `split` has them in compute
  // By rank: own seconds, kernels and pauses, beyond those of the median rank of its pipeline stage (the
  // faster one of the middle two). 0 but for rounding is 0. Other stages have other kernels.
  std::vector<double> behind_seconds;
  std::vector<observe::SpanFile> traces;  // by rank, ascending
  CriticalPath critical_path;             // when it was wanted
  double wall_seconds = 0;                // that this evaluation took
};

// `programs`: one a stage, as parallel::build_step_programs makes them; any other list is simulated as it
// stands. Throws UsageError for a rank that is not there, RunError when the programs wait for each other in
// vain.
StepResult simulate_step(const parallel::Layout& layout, const std::vector<parallel::Program>& programs,
                         const StepOptions& options);

}  // namespace lockstep::sim
