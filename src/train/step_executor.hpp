// Executes step programs on one worker: walks the actions, runs each on real tensors, records every op. It
// knows no schedule of its own; what the program leaves out is not done.
#pragma once

#include <functional>
#include <memory>
#include <vector>

#include "data/batch_prefetcher.hpp"
#include "parallel/program.hpp"
#include "train/groups.hpp"
#include "train/message_box.hpp"
#include "train/model_chunk.hpp"
#include "train/sharded_state.hpp"

namespace lockstep::train {

struct StepSettings {
  int64_t step = 1;  // 1 is the first
  double lr = 0;
  double loss_scale = 1;  // 1 / tokens of the global batch
};

// Sums over all workers, as gradient_norm or evaluation_loss left them.
struct StepSums {
  double squared_norm = 0;  // of the gradient, before clipping
  double loss = 0;          // nats
};

class StepExecutor {
 public:
  // Layout, groups and context outlive the executor.
  StepExecutor(const parallel::Layout& layout, const Groups& groups, const nn::Context& context);
  // Waits for what is under way on its tensors: after a failure, tell the peers first (World::abort).
  ~StepExecutor();
  StepExecutor(const StepExecutor&) = delete;
  StepExecutor& operator=(const StepExecutor&) = delete;

  // `load` gives the batch when the program asks for it.
  StepSums train_step(const parallel::Program& program, const std::function<data::StepBatch()>& load,
                      const StepSettings& settings);
  StepSums evaluate(const parallel::Program& program, data::StepBatch batch);

  struct Chunk {
    std::unique_ptr<ModelChunk> model;
    std::unique_ptr<ShardedState> state;
  };
  const std::vector<Chunk>& chunks() const { return chunks_; }

 private:
  using Action = parallel::Action;
  void execute(const Action& action);
  void take_batch(data::StepBatch batch);
  ForwardInput input_of(const Action& action);
  void forward(const Action& action);
  void backward(const Action& action);
  void reduce_gradients(const Action& action);
  void gradient_norm();
  void sum_over_all(const char* name);
  void optimizer_step(const Action& action);
  void gather_parameters(const Action& action);

  // A collective of dp that runs beside the computation; its record is written when it is waited for.
  void start_on_dp(const char* name, int chunk, int64_t bytes, comm::Work work);
  void wait_for_dp();
  Chunk& chunk(const Action& action) { return chunks_[static_cast<size_t>(action.chunk)]; }

  struct PendingWork {
    comm::Work work;
    nn::OpRecord record;
  };

  const parallel::Layout& layout_;
  const Groups& groups_;
  const nn::Context& context_;
  std::vector<Chunk> chunks_;
  MessageBox messages_;
  std::vector<PendingWork> dp_work_;

  // Of the step under way.
  bool training_ = true;
  StepSettings settings_;
  std::function<data::StepBatch()> load_;
  data::StepBatch batch_;
  std::map<std::pair<int, int>, at::Tensor> outputs_;    // by chunk and micro-batch, until they are sent
  std::map<std::pair<int, int>, at::Tensor> gradients_;  // of inputs, likewise
  StepSums sums_;
};

}  // namespace lockstep::train
