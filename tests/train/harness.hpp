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

// How a job is cut, and, from `layers` on, what it computes.
struct LayoutChoice {
  int64_t tp = 1, cp = 1, pp = 1, dp = 1, virtual_stages = 1;
  bool sequence_parallel = true;
  config::ScheduleKind schedule = config::ScheduleKind::one_f_one_b;
  int64_t micro_batch = 1;
  int64_t first_stage_less_layers = 0, last_stage_less_layers = 0;
  config::LayerSplit layer_split = config::LayerSplit::even;
  int64_t replicas = 0, zero = 1;
  bool reshard_after_forward = true;
  config::GradientScatter gradient_scatter = config::GradientScatter::chunk;
  config::GatheredInput gathered_input = config::GatheredInput::gather_again;
  std::vector<std::string> recompute = {};
  int64_t recompute_every = 1;

  int64_t layers = 4, kv_heads = 4, vocab = 256;
  bool tie_embeddings = false, document_mask = false;
};
// The same job on one worker.
LayoutChoice alone(const LayoutChoice& choice);
std::string describe(const LayoutChoice& choice);

// A small model on the bundled text, the same job whatever the layout.
config::RunFile small_run(const LayoutChoice& choice, config::Dtype dtype, int64_t steps);

struct RankOps {
  int rank = 0;
  parallel::Coordinates at;
  std::vector<nn::OpRecord> ops;  // of the last step
  std::vector<nn::OpRecord> evaluation;
};

struct JobResult {
  std::vector<double> losses;
  std::vector<double> grad_norms;
  double eval_loss = 0;
  std::vector<train::StepReport> reports;  // of rank 0
  std::map<int, std::string> failures;     // when `may_fail`: what ranks threw
  train::WeightsHash hash{};
  std::map<std::string, at::Tensor> gradients;  // of the last step, whole parameters, fp64
  std::vector<RankOps> ranks;                   // when `record`
};

struct JobOptions {
  int64_t steps = 1;
  bool record = false;     // ops of the last step, and of the evaluation
  bool gradients = false;  // of the last step
  bool evaluate = false;
  // Changes the programs that a rank executes.
  std::function<void(std::vector<parallel::Program>&, int rank)> mutate = {};
  // Called on every rank before each step.
  std::function<void(train::Trainer&, int64_t step, int rank)> before_step = {};
  // Called on every rank after the last step; one rank at a time.
  std::function<void(const train::Trainer&, const train::StepReport&, int rank)> after_last_step = {};
  bool may_fail = false;
};

JobResult run_job(const config::RunFile& run, const JobOptions& options);

}  // namespace lockstep::tests
