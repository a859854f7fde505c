// A pipeline chunk of embedding, layers and head, run as a trainer runs it; and layouts to run it in.
#pragma once

#include <vector>

#include "harness.hpp"
#include "model/layer_program.hpp"
#include "nn/embedding.hpp"

namespace lockstep::nn::test {

class Chunk {
 public:
  // Random weights, the same for the same case, content and rank; gradients start at zero.
  Chunk(const Context& ctx, const Case& c, const model::ChunkContent& content,
        const model::Recompute& recompute);

  // On ids, targets and hidden states that only the case decides.
  void forward();
  void backward();  // fused
  void backward_input();
  void backward_weight();

  int64_t activation_bytes() const;  // what it holds between forward and backward
  int64_t stash_bytes() const;       // between the halves of backward
  std::vector<at::Tensor> gradients() const;
  double loss() const { return loss_; }
  LayerWeights& layer(size_t i) { return layers_[i]; }

 private:
  model::Recompute recompute_of(size_t i) const;
  void enter(size_t i) const;  // tells the log which layer comes
  void leave() const;
  at::Tensor tokens(uint64_t seed) const;
  at::Tensor hidden(uint64_t seed) const;
  void layer_input_half(size_t i);
  void layer_weight_half(size_t i);
  void head_input_half();
  void head_weight_half();
  void embedding_weight_half();

  const Context& ctx_;
  Case case_;
  model::ChunkContent content_;
  model::Recompute recompute_;
  TokenPlaces places_;
  at::Tensor embedding_, embedding_gradient_;
  std::vector<LayerTensors> layers_, layer_gradients_;
  HeadTensors head_, head_gradients_;

  EmbeddingActivations kept_embedding_;
  std::vector<LayerActivations> kept_;
  HeadActivations kept_head_;
  std::vector<WeightStash> stash_;
  HeadStash head_stash_;
  at::Tensor d_;  // the gradient on its way
  double loss_ = 0;
};

// Tensor, sequence and context parallel alone and together, gathered inputs kept, vocabularies that tp does
// not divide, copied key heads, document masks.
std::vector<Case> chunk_layouts();
// Every family alone, all together, and full.
std::vector<model::Recompute> recompute_modes();

}  // namespace lockstep::nn::test
