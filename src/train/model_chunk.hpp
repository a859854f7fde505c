// One pipeline chunk of one worker: its flat buffers, its layers as views into them, and the activations of
// the micro-batches that are between their forward and their backward.
#pragma once

#include <ATen/ATen.h>

#include <map>
#include <vector>

#include "nn/embedding.hpp"
#include "nn/head.hpp"
#include "nn/transformer_layer.hpp"
#include "train/flat_layout.hpp"

namespace lockstep::train {

struct ForwardInput {
  at::Tensor hidden;   // [t, H]; not read where the chunk starts with the embedding
  at::Tensor ids;      // [T] int64, for the embedding
  at::Tensor targets;  // [T] int64, for the head; -1: a position without loss
  nn::TokenPlaces places;
};

struct ForwardOutput {
  at::Tensor hidden;  // [t, H]; undefined behind the head
  double loss = 0;    // sum over the positions of the micro-batch, nats; behind the head only
};

class ModelChunk {
 public:
  // `layout` and `context` outlive the chunk.
  ModelChunk(const parallel::Layout& layout, int stage, int chunk, const nn::Context& context);

  const FlatLayout& flat() const { return flat_; }

  // Passes read weights [padded], compute dtype, and add to gradients [padded], gradient dtype. An undefined
  // tensor takes the chunk's away: a pass that then needs it is a RunError.
  void set_weights(const at::Tensor& weights);
  void set_gradients(const at::Tensor& gradients);
  const at::Tensor& weights() const { return weights_; }
  const at::Tensor& gradients() const { return gradients_; }

  ForwardOutput forward(int micro_batch, const ForwardInput& input);
  // As forward, and keeps nothing for a backward.
  ForwardOutput evaluate(const ForwardInput& input);
  // `dy` [t, H]: gradient of the output, undefined behind the head, where the gradient of the loss starts.
  // Adds to gradients(); returns the gradient of the input, undefined at the embedding. RunError when the
  // micro-batch had no forward.
  at::Tensor backward(int micro_batch, at::Tensor dy);
  // The same in two halves: the first adds nothing to gradients(), the second everything.
  at::Tensor backward_input(int micro_batch, at::Tensor dy);
  void backward_weight(int micro_batch);

  // Held now for micro-batches between forward and the end of backward: what parallel::LiveActivations
  // counts.
  int64_t live_bytes() const;

 private:
  struct Activations {
    nn::TokenPlaces places;
    nn::EmbeddingActivations embedding;
    std::vector<nn::LayerActivations> layers;
    nn::HeadActivations head;
  };
  struct Stash {
    nn::EmbeddingActivations embedding;
    at::Tensor embedding_gradient;  // [t, H], of its output
    std::vector<nn::WeightStash> layers;
    std::vector<nn::LayerGradients> norm_gradients;  // norms alone: [H] each
    nn::HeadStash head;
    at::Tensor head_norm_gradient;
  };

  ForwardOutput run(const ForwardInput& input, Activations* kept);
  Activations take_activations(int micro_batch);
  model::Recompute recompute(size_t layer) const;
  void enter_layer(size_t layer) const;  // for the op log
  void leave_layers() const;
  void need(const at::Tensor& buffer, const char* what) const;

  const nn::Context& context_;
  const model::ChunkContent content_;
  const model::Recompute recompute_;
  FlatLayout flat_;
  bool tied_;  // the output matrix is the embedding
  at::Tensor weights_, gradients_;
  at::Tensor embedding_, embedding_gradient_;
  std::vector<nn::LayerWeights> layers_;
  std::vector<nn::LayerGradients> layer_gradients_;
  nn::HeadWeights head_;
  nn::HeadGradients head_gradients_;
  std::map<int, Activations> live_;  // by micro-batch
  std::map<int, Stash> stashed_;
};

}  // namespace lockstep::train
