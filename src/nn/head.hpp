// Final norm, output matrix and cross entropy; the vocabulary is cut over tensor parallel and so is the
// softmax (Megatron-LM's vocab-parallel cross entropy, arXiv:1909.08053). Where tp does not divide the
// vocabulary, the last ranks' rows behind it are padding (model::ShardShape::vocab_rows): their logits take
// no part in the softmax and their gradient is exactly zero.
#pragma once

#include <ATen/ATen.h>

#include "nn/context.hpp"

namespace lockstep::nn {

struct HeadTensors {
  at::Tensor norm;    // [H]
  at::Tensor output;  // [V, H], this rank's rows
};
using HeadWeights = HeadTensors;    // compute dtype
using HeadGradients = HeadTensors;  // gradient dtype, added to

// The head's part of model::chunk_activation_bytes.
struct HeadActivations {
  at::Tensor input;        // [t, H]
  at::Tensor normed;       // [t, H]; [T, H] with keep_gathered
  at::Tensor logits;       // [T, V]
  at::Tensor log_sum_exp;  // [T], statistic dtype, over the whole vocabulary
  at::Tensor targets;      // [T] int64

  int64_t bytes() const;
};

// The head's part of model::chunk_stash_bytes.
struct HeadStash {
  at::Tensor normed;           // [t, H]; [T, H] with keep_gathered
  at::Tensor logits_gradient;  // [T, V]

  int64_t bytes() const;
};

// x [t, H]; targets [T] int64 in the model's vocabulary or -1, a position without loss (RunError else).
// Returns the sum of the losses in nats over this rank's T tokens, the same on every rank of tp. It is added
// up in fp64, tokens in ascending order.
double head_forward(const Context& ctx, const HeadWeights& weights, at::Tensor x, const at::Tensor& targets,
                    HeadActivations& kept);

// Gradient of the sum of losses with respect to x, [t, H]; adds the norm's gradient, which is partial with
// sequence parallel, as in layer_backward_input.
at::Tensor head_backward_input(const Context& ctx, const HeadWeights& weights, HeadActivations&& kept,
                               HeadGradients& gradients, HeadStash& stash);

// Adds the output matrix' gradient.
void head_backward_weight(const Context& ctx, HeadStash&& stash, HeadGradients& gradients);

}  // namespace lockstep::nn
