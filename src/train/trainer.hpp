// One worker's training run: data, chunks, step programs, evaluation. The worker's main drives it; tests
// drive it with threads as ranks.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>
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
  double loss = 0;   // mean over the trained tokens of the global batch, nats
  double grad_norm = 0;
  double lr = 0;
  int64_t sequences = 0;                       // of the global batch
  int64_t tokens = 0;                          // trained: those that divide the loss
  observe::ExposedSeconds exposed, under_way;  // of this worker
  int64_t peak_activation_bytes = 0;           // of this worker
  bool skipped = false;  // loss or gradient was not finite; the weights are as they were
  std::string trouble;   // then: layer, op and rank where that began
};

struct EvaluationReport {
  double loss = 0;  // mean, nats a token
  int64_t tokens = 0;
};

class Trainer {
 public:
  // Gives the step programs of a layout, one for each pipeline position.
  using Programs = std::function<std::vector<parallel::Program>(const parallel::Layout&)>;
  // `world` outlives the trainer and has as many ranks as the run's layout. `programs` is asked once for each
  // batch size of the run; tests give others than build_step_programs.
  Trainer(const config::RunFile& run, comm::World& world,
          const Programs& programs = parallel::build_step_programs);
  ~Trainer();

  const parallel::Layout& layout() const { return layout_; }
  const Groups& groups() const { return groups_; }
  const StepExecutor& executor() const { return *executor_; }
  StepExecutor& executor() { return *executor_; }
  nn::OpLog& log() { return log_; }

  // All workers call these together. What a worker throws from them has ended its peers' waits: they get a
  // RunError that names this worker.

  // The next step. When its loss or gradient is not finite the weights stay as they were; with
  // train.nonfinite = "stop", or after most_skips_in_a_row such steps, that is a RunError that names the
  // layer, op and rank where it began, the same on every worker.
  StepReport step();
  static constexpr int most_skips_in_a_row = 10;
  // Mean loss of the held-out part: train.eval_sequences of its windows, all when 0 or more than there are.
  EvaluationReport evaluate();
  // 128 bits over the master weights of all workers, the same on each.
  WeightsHash weights_hash() const;

 private:
  template <class F>
  auto with_peers_told(F&& work) const;
  StepReport next_step();
  EvaluationReport held_out_loss();
  void check_finite(StepReport& report, const StepOutcome& outcome);

  config::RunFile run_;
  comm::World& world_;
  parallel::Layout layout_;
  // A size of the global batch, for as long as the ramp keeps it.
  struct BatchSize {
    int64_t last_step;
    std::unique_ptr<parallel::Layout> layout;
    parallel::Program program;  // of this worker's pipeline position
  };
  Groups groups_;
  std::vector<BatchSize> batch_sizes_;
  nn::OpLog log_;
  nn::Context context_;
  data::Corpus corpus_;
  std::unique_ptr<StepExecutor> executor_;
  std::optional<data::Sampler> sampler_;
  std::unique_ptr<data::BatchPrefetcher> prefetcher_;
  int64_t steps_done_ = 0;
  int64_t updates_done_ = 0;
  int skips_in_a_row_ = 0;
};

}  // namespace lockstep::train
