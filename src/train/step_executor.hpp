// Executes step programs on one worker: walks the actions, runs each on real tensors, records every op. It
// knows no schedule of its own; what the program leaves out is not done.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "data/batch_prefetcher.hpp"
#include "parallel/program.hpp"
#include "train/chunk.hpp"
#include "train/gradient_norm.hpp"
#include "train/groups.hpp"
#include "train/message_box.hpp"
#include "train/non_finite.hpp"

namespace lockstep::train {

struct StepSettings {
  double lr = 0;
  int64_t update = 1;  // of the optimizer, with this one: 1 is the first
};

struct StepOutcome {
  StepSums sums;
  observe::StepWaits waits;           // of this worker
  int64_t peak_activation_bytes = 0;  // of this worker, of the values after each pass
  // Loss or gradient had NaN or infinity: the weights are as they were. Where it came from, the same text on
  // every worker.
  std::optional<std::string> trouble;
};

class StepExecutor {
 public:
  // `layout` is that of the largest batch. Layout, groups and context outlive the executor.
  StepExecutor(const parallel::Layout& layout, const Groups& groups, const nn::Context& context);
  StepExecutor(const StepExecutor&) = delete;
  StepExecutor& operator=(const StepExecutor&) = delete;
  // Its members wait for what is under way on their tensors: after a failure, tell the peers first
  // (World::abort).

  // `layout`: of this step's batch size, the executor's but for that; `program` is of it. `load` gives the
  // batch when the program asks for it.
  StepOutcome train_step(const parallel::Layout& layout, const parallel::Program& program,
                         const std::function<data::StepBatch()>& load, const StepSettings& settings);
  StepSums evaluate(const parallel::Program& program, data::StepBatch batch);

  const std::vector<std::unique_ptr<Chunk>>& chunks() const { return chunks_; }

 private:
  using Action = parallel::Action;
  void begin_step(const parallel::Layout& layout);
  void execute(const Action& action);
  void run(const Action& action);
  void finish_step();
  void take_batch(data::StepBatch batch);
  ForwardInput input_of(const Action& action);
  void forward(const Action& action);
  void backward(const Action& action);
  at::Tensor gradient_of_output(const Action& action);
  int64_t live_activation_bytes() const;
  void reduce_gradients(const Action& action);
  void sum_tied_gradients(const Action& action);
  void gradient_norm();
  void evaluation_loss();
  std::vector<double> sum_over(const char* name, std::vector<double> numbers, bool over_dp);
  void optimizer_step(const Action& action);
  std::string find_non_finite(const parallel::Program& program);
  void count_blocked_time(bool begin);
  Chunk& chunk(const Action& action) { return *chunks_[static_cast<size_t>(action.chunk)]; }

  const parallel::Layout* layout_;
  const Groups& groups_;
  const nn::Context& context_;
  WaitMeter meter_;
  AsyncCollectives collectives_;
  ChunkContext chunk_context_;
  std::vector<std::unique_ptr<Chunk>> chunks_;
  MessageBox messages_;

  // Of the step under way.
  bool training_ = true;
  StepSettings settings_;
  std::function<data::StepBatch()> load_;
  data::StepBatch batch_;
  std::vector<nn::TokenPlaces> places_;                  // by micro-batch; empty without a document mask
  std::map<std::pair<int, int>, at::Tensor> outputs_;    // by chunk and micro-batch, until they are sent
  std::map<std::pair<int, int>, at::Tensor> gradients_;  // of inputs, likewise
  std::unique_ptr<NormSums> norm_;
  StepSums sums_;
  int64_t peak_activation_bytes_ = 0;
  int64_t tp_blocked_ = 0, cp_blocked_ = 0;  // Communicator::blocked_ns at the step's start
};

}  // namespace lockstep::train
