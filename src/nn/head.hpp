// Final norm, output matrix and cross entropy; the vocabulary is cut over tensor parallel and so is the
// softmax (Megatron-LM's vocab-parallel cross entropy, arXiv:1909.08053).
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
  at::Tensor normed;       // [t, H]
  at::Tensor logits;       // [T, V]
  at::Tensor log_sum_exp;  // [T], statistic dtype, over the whole vocabulary
  at::Tensor targets;      // [T] int64

  int64_t bytes() const;
};

// x [t, H]; targets [T] int64 in -1 .. V tp - 1 (RunError else), -1: a position without loss. Returns the sum
// of the losses in nats, the same on every rank of tp. It is added up in fp64, tokens in ascending order.
double head_forward(const Context& ctx, const HeadWeights& weights, const at::Tensor& x,
                    const at::Tensor& targets, HeadActivations& kept);

// Gradient of scale x (sum of losses) with respect to x, [t, H]; adds the weights' gradients. The norm's is
// partial with sequence parallel, as in layer_backward_input. `scale` is usually 1 / (tokens with a loss in
// the global batch).
at::Tensor head_backward(const Context& ctx, const HeadWeights& weights, HeadActivations&& kept, double scale,
                         HeadGradients& gradients);

}  // namespace lockstep::nn
