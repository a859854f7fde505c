// Times this machine's kernels by training small models for a few steps, through the same workers, programs
// and traces as any run: only lockstep-worker has the kernels, and what it runs is what is priced.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "cluster/calibration.hpp"
#include "config/run_file.hpp"
#include "model/op.hpp"
#include "resilience/launcher.hpp"

namespace lockstep::cli {

// A small model, so that kernels of many sizes are timed; cut over tp workers, and with dp of them, so that
// cores are busy as in a run.
struct TimedShape {
  int64_t hidden = 128, ffn = 384, heads = 8, kv_heads = 4;
  int64_t sequence = 128, micro_batch = 4, micro_batches = 2;
  int64_t tp = 1, dp = 1;

  bool operator==(const TimedShape&) const = default;
};

struct TimingPlan {
  std::vector<TimedShape> shapes;
  config::Dtype dtype = config::Dtype::bf16;
  int64_t steps = 8;  // traced, after three that warm up; at least 2. As many follow that are not
};
// Lone workers of several shapes, the first shape with a worker on every core (where there are two or more),
// cut over two of them, and with `most_workers` where those are more than the cores. `quick`: one shape and
// few steps.
TimingPlan timing_plan(config::Dtype dtype, int cores, int most_workers, bool quick);

// Samples by the curve that they are for.
struct KernelSamples {
  std::vector<cluster::KernelSample> gemm, weight_gradient, attention, memory, rows, exponentials;

  std::vector<cluster::KernelSample>& of(const model::Op& op);
  // Every sample's seconds divided by `slowdown`.
  void add(const KernelSamples& more, double slowdown);
  size_t size() const;
};

// One shape's run as it was taken.
struct TimedRun {
  TimedShape shape;
  config::RunFile run;
  double step_seconds = 0;    // the middle of the steps that were not traced
  double kernel_seconds = 0;  // of all kernels of a worker's step, the middle of them
  double peak_flops = 0;      // of the run's matrix peak, one core's
  // A lone worker's: from one op's end to the next one's start, for each op; from a step's last op to the
  // next step's first.
  double seconds_between_ops = 0, seconds_between_steps = 0;
  KernelSamples kernels;
};

// How much longer, as a share, kernels take with a worker on every core: by the runs of one shape with one
// worker and with `cores`, the middle of each. 0 where they are not there, and at least 0.
double busy_slowdown(const std::vector<TimedRun>& runs, int cores);

// Trains `shape` in a folder of its own under `scratch`, on a text that it makes there. What is not finished
// is in `end`, and the result empty. RunError when the run fails.
struct TimedRunEnd {
  TimedRun timed;
  resilience::LaunchEnd end;
};
TimedRunEnd time_run(const TimedShape& shape, const TimingPlan& plan, const std::filesystem::path& worker,
                     const std::filesystem::path& scratch);

}  // namespace lockstep::cli
