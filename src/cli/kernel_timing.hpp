// Times this machine's kernels by training small models for a few steps, through the same workers, programs
// and traces as any run: only lockstep-worker has the kernels, and what it runs is what is priced.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "cluster/calibration.hpp"
#include "config/run_file.hpp"
#include "resilience/launcher.hpp"

namespace lockstep::cli {

// A small model, cut over tp workers, so that kernels of many sizes are timed and cores are busy as in a run.
struct TimedShape {
  int64_t hidden = 128, ffn = 384, heads = 8, kv_heads = 4;
  int64_t sequence = 128, micro_batch = 4, micro_batches = 2;
  int64_t tp = 1;
};

struct TimingPlan {
  std::vector<TimedShape> shapes;
  config::Dtype dtype = config::Dtype::bf16;
  int64_t steps = 8;  // traced, after three that warm up; at least 2
};
// `quick`: two shapes and few steps.
TimingPlan timing_plan(config::Dtype dtype, int cores, bool quick);

// One shape's run as it was taken.
struct TimedRun {
  config::RunFile run;
  double step_seconds = 0;           // the middle of the traced steps'
  double peak_flops = 0;             // of the run's matrix peak, one core's
  double seconds_between_ops = 0;    // a step's, from one op's end to the next one's start, for each op
  double seconds_between_steps = 0;  // from the last op of a step to the first of the next
  std::vector<cluster::KernelSample> gemm, attention, memory;
};

// Trains `shape` in a folder of its own under `scratch`, on a text that it makes there. What is not finished
// is in `end`, and the result empty. RunError when the run fails.
struct TimedRunEnd {
  TimedRun timed;
  resilience::LaunchEnd end;
};
TimedRunEnd time_run(const TimedShape& shape, const TimingPlan& plan, const std::filesystem::path& worker,
                     const std::filesystem::path& scratch);

}  // namespace lockstep::cli
