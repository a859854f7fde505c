// The figures of a step that planner, simulator and trainer all report, from the seconds it took.
#pragma once

#include <array>
#include <cstdint>
#include <string_view>

#include "base/json_fwd.hpp"
#include "config/run_file.hpp"

namespace lockstep::cost {

// Where a step's seconds go, means over ranks; the parts sum to the step.
struct StepSplit {
  double data = 0;       // waiting for the batch
  double compute = 0;    // kernels of forward and backward; pauses of the host between them
  double tp = 0;         // tensor-parallel collectives, waiting for the group included
  double cp = 0;         //
  double pp = 0;         // waiting for pipeline messages and the all-reduce over stages, beyond the bubble
  double dp = 0;         // waiting for data-parallel collectives that compute did not hide
  double bubble = 0;     // idle by the schedule alone
  double optimizer = 0;  // kernels of gradient norm and optimizer
  double barrier = 0;    // waiting for slower ranks at the end

  static constexpr std::array<std::string_view, 9> names = {"data", "compute", "tp",        "cp",     "pp",
                                                            "dp",   "bubble",  "optimizer", "barrier"};
  // In the order of `names`.
  std::array<double, 9> values() const { return {data, compute, tp, cp, pp, dp, bubble, optimizer, barrier}; }
  std::array<double*, 9> parts() {
    return {&data, &compute, &tp, &cp, &pp, &dp, &bubble, &optimizer, &barrier};
  }
  double total() const;
};

struct StepFigures {
  double seconds = 0;
  int64_t tokens = 0;
  double tokens_per_second = 0;
  double tflops_per_gpu = 0;  // model FLOPs, attention as if full; recompute never counts
  double mfu = 0;             // of the peak of the compute dtype; may exceed 1, see flops_per_token
  double mfu_causal = 0;      // attention counted as half: what is really computed
  double bubble_fraction = 0;
  StepSplit split;
};

StepFigures step_figures(const config::RunFile& run, double seconds, double bubble_fraction,
                         const StepSplit& split);

// JSON blocks `layout`, `model` and `step` of `plan` and `simulate`.
Json layout_json(const config::RunFile& run);
Json model_json(const config::RunFile& run);
Json step_json(const StepFigures& figures);

}  // namespace lockstep::cost
