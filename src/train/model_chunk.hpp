// One pipeline chunk of one worker: its flat buffers, its layers as views into them, and the activations of
// the micro-batches that are between their forward and their backward.
#pragma once

#include <ATen/ATen.h>

#include <map>
#include <optional>
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
};

struct ForwardOutput {
  at::Tensor hidden;  // [t, H]; undefined behind the head
  double loss = 0;    // sum over the positions of the micro-batch, nats; behind the head only
};

class ModelChunk {
 public:
  // `context` outlives the chunk. Weights and gradients start at zero.
  ModelChunk(const parallel::Layout& layout, int stage, int chunk, const nn::Context& context);

  const FlatLayout& flat() const { return flat_; }
  at::Tensor& weights() { return weights_; }      // [padded], compute dtype
  at::Tensor& gradients() { return gradients_; }  // [padded], gradient dtype

  ForwardOutput forward(int micro_batch, const ForwardInput& input);
  // As forward, and keeps nothing for a backward.
  ForwardOutput evaluate(const ForwardInput& input);
  // `dy` [t, H]: gradient of the output, undefined behind the head, where the gradient of `loss_scale` x loss
  // starts. Adds to gradients(); returns the gradient of the input, undefined at the embedding. RunError when
  // the micro-batch had no forward.
  at::Tensor backward(int micro_batch, at::Tensor dy, double loss_scale);

 private:
  struct Activations {
    nn::EmbeddingActivations embedding;
    std::vector<nn::LayerActivations> layers;
    nn::HeadActivations head;
  };

  void bind_views(const model::ChunkContent& content);
  ForwardOutput run(const ForwardInput& input, Activations& kept);

  const nn::Context& context_;
  FlatLayout flat_;
  at::Tensor weights_, gradients_;
  std::optional<at::Tensor> embedding_, embedding_gradient_;
  std::vector<nn::LayerWeights> layers_;
  std::vector<nn::LayerGradients> layer_gradients_;
  std::optional<nn::HeadWeights> head_;
  std::optional<nn::HeadGradients> head_gradients_;
  std::map<int, Activations> live_;  // by micro-batch
};

}  // namespace lockstep::train
