// One pipeline chunk of one worker with everything that ZeRO shards: weights, gradients, optimizer state.
#pragma once

#include <ATen/ATen.h>

#include "parallel/layout.hpp"
#include "train/async_collectives.hpp"
#include "train/groups.hpp"
#include "train/model_chunk.hpp"
#include "train/sharded_state.hpp"

namespace lockstep::train {

// What the chunks of a worker share; outlives them.
struct ChunkContext {
  const parallel::Layout& layout;
  const Groups& groups;
  const nn::Context& nn;
  AsyncCollectives& collectives;
};

class Chunk {
 public:
  // Starts from the run's initial weights.
  Chunk(const ChunkContext& context, int chunk);

  ModelChunk& model() { return model_; }
  const ModelChunk& model() const { return model_; }
  ShardedState& state() { return state_; }
  const ShardedState& state() const { return state_; }

  // What passes read of this rank's shards alone, zero = 3: [state's size], compute dtype.
  const at::Tensor& weight_shards() const { return weights_; }

  // zero = 3: gathers the parameters beside the computation, waits for them, frees them. Without sharding
  // (one rank, or a lower stage) the parameters are always there.
  void unshard();
  void wait_for_parameters();
  void reshard();

  // A step's reduced gradients start at zero.
  void begin_step();
  // Makes the buffer that backwards add to, where it is not there; zero at first.
  void need_gradients();
  // Sums what backwards have added since the last reduction over the ranks that share the parameters, in
  // ascending order, onto what was reduced before where the layout accumulates. `contributors`: ranks of
  // dp_cp, the first ones, whose gradients count.
  void reduce_gradients(int contributors);
  void gather_gradients();
  // The tied embedding's part of the reduced gradient.
  at::Tensor tied_gradient();
  void gather_parameters();

  // One step of the optimizer on what this rank owns, and the weights that passes read.
  void update(const OptimizerStep& step);

 private:
  bool is_sharded() const { return context_.groups.dp_cp != nullptr; }
  bool keeps_whole_weights() const { return context_.layout.zero() < 3 || !is_sharded(); }
  void check_own_weights() const;
  void all_reduce_norms();
  void all_reduce_kv();
  void reduce_segments(int contributors);
  void write_weights();

  const ChunkContext& context_;
  int chunk_;
  ModelChunk model_;
  at::Tensor weights_;  // compute dtype: [padded], or with sharded parameters [state's size]
  ShardedState state_;
};

}  // namespace lockstep::train
