// One worker's training run: data, chunks, step programs, evaluation. The worker's main drives it; tests
// drive it with threads as ranks.
#pragma once

#include <memory>
#include <optional>
#include <vector>

#include "comm/communicator.hpp"
#include "data/corpus.hpp"
#include "data/sampler.hpp"
#include "nn/context.hpp"
#include "nn/op_log.hpp"
#include "parallel/program.hpp"
#include "train/step_executor.hpp"

namespace lockstep::train {

struct StepReport {
  int64_t step = 0;  // 1 is the first
  double loss = 0;   // mean over the global batch, nats a token
  double grad_norm = 0;
  double lr = 0;
};

struct EvaluationReport {
  double loss = 0;  // mean, nats a token
  int64_t tokens = 0;
};

class Trainer {
 public:
  // `world` outlives the trainer and has as many ranks as the run's layout. `programs` are the step programs
  // to execute, one for each pipeline position (build_step_programs(layout), unless a test changed them).
  Trainer(const config::RunFile& run, comm::World& world, std::vector<parallel::Program> programs);
  ~Trainer();

  const parallel::Layout& layout() const { return layout_; }
  const Groups& groups() const { return groups_; }
  const StepExecutor& executor() const { return *executor_; }
  nn::OpLog& log() { return log_; }

  // All workers call these together. What a worker throws from them has ended its peers' waits: they get a
  // RunError that names this worker.

  // The next step.
  StepReport step();
  // Mean loss of the held-out part: train.eval_sequences of its windows, all when 0 or more than there are.
  EvaluationReport evaluate();
  // 128 bits over the master weights of all workers, the same on each.
  WeightsHash weights_hash() const;

 private:
  template <class F>
  auto with_peers_told(F&& work) const;
  StepReport next_step();
  EvaluationReport held_out_loss();
  data::MicroBatch held_out_micro_batch(const data::Windows& windows, int64_t first, int64_t end) const;

  config::RunFile run_;
  comm::World& world_;
  parallel::Layout layout_;
  std::vector<parallel::Program> programs_;
  Groups groups_;
  nn::OpLog log_;
  nn::Context context_;
  data::Corpus corpus_;
  std::unique_ptr<StepExecutor> executor_;
  std::optional<data::Sampler> sampler_;
  std::unique_ptr<data::BatchPrefetcher> prefetcher_;
  int64_t steps_done_ = 0;
};

}  // namespace lockstep::train
