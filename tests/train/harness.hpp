// Runs a small training job with threads as ranks inside the test and collects what the ranks saw.
#pragma once

#include <ATen/ATen.h>

#include <functional>
#include <map>
#include <string>
#include <vector>

#include "config/run_file.hpp"
#include "train/trainer.hpp"

namespace lockstep::tests {

struct LayoutChoice {
  int64_t tp = 1, pp = 1, dp = 1, virtual_stages = 1;
  bool sequence_parallel = true;
  config::ScheduleKind schedule = config::ScheduleKind::one_f_one_b;
  int64_t micro_batch = 1;
  int64_t first_stage_less_layers = 0, last_stage_less_layers = 0;
};
std::string describe(const LayoutChoice& choice);

// A small model on the bundled text, the same job whatever the layout.
config::RunFile small_run(const LayoutChoice& choice, config::Dtype dtype, int64_t steps);

struct RankOps {
  int rank = 0;
  parallel::Coordinates at;
  std::vector<nn::OpRecord> ops;  // of the last step
};

struct JobResult {
  std::vector<double> losses;
  std::vector<double> grad_norms;
  double eval_loss = 0;
  train::WeightsHash hash{};
  std::map<std::string, at::Tensor> gradients;  // of the last step, whole parameters, fp64
  std::vector<RankOps> ranks;                   // when `record`
};

struct JobOptions {
  int64_t steps = 1;
  bool record = false;     // ops of the last step
  bool gradients = false;  // of the last step
  bool evaluate = false;
  // Changes the programs that a rank executes.
  std::function<void(std::vector<parallel::Program>&, int rank)> mutate = {};
};

JobResult run_job(const config::RunFile& run, const JobOptions& options);

}  // namespace lockstep::tests
