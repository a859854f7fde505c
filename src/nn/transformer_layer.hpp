// One Llama layer (pre-norm, grouped-query attention with rotary embedding, SwiGLU) with explicit backward.
// Ops, their order and bytes are model::LayerProgram's. Letters as in model/shape.hpp; t is T, or T/tp with
// sequence parallel. `recompute` is always that of the layer at hand: model::Recompute::at. With
// shape.keep_gathered the inputs of the column-parallel products are kept gathered, [T, H] for [t, H].
//
// Tensors are contiguous, of the context's dtype. Callers hold an at::InferenceMode or at::NoGradGuard.
#pragma once

#include <ATen/ATen.h>

#include "model/layer_program.hpp"
#include "nn/context.hpp"

namespace lockstep::nn {

// Views into flat buffers that the caller owns; this rank's part.
struct LayerTensors {
  at::Tensor attention_norm;  // [H]
  at::Tensor qkv;             // [(h + 2 kv) D, H], rows of q, then k, then v
  at::Tensor attention_out;   // [H, h D]
  at::Tensor ffn_norm;        // [H]
  at::Tensor gate_up;         // [2 F, H], rows of gate, then up
  at::Tensor down;            // [H, F]
};
using LayerWeights = LayerTensors;    // compute dtype
using LayerGradients = LayerTensors;  // gradient dtype, added to

// What forward keeps: model::layer_activation_bytes. What is computed again is undefined.
struct LayerActivations {
  at::Tensor input;             // [t, H]
  at::Tensor attention_normed;  // [t, H]
  at::Tensor qkv;               // [T, (h + 2 kv) D], q and k rotated
  at::Tensor attention_output;  // [T, h D]
  at::Tensor log_sum_exp;       // [T, h], statistic dtype, of the scaled scores
  at::Tensor ffn_input;         // [t, H]
  at::Tensor ffn_normed;        // [t, H]
  at::Tensor gate_up;           // [T, 2 F]
  at::Tensor swiglu;            // [T, F]

  int64_t bytes() const;
};

// What backward_input leaves for backward_weight, model::layer_stash_bytes: each product's input and its
// output's gradient.
struct WeightStash {
  // Inputs of the column-parallel products [t, H]; where `recompute` drops the norms' outputs, the norms'.
  at::Tensor qkv_input, gate_up_input;
  at::Tensor qkv_gradient;            // [T, (h + 2 kv) D]
  at::Tensor attention_output;        // [T, h D]
  at::Tensor attention_out_gradient;  // [T, H]
  at::Tensor gate_up_gradient;        // [T, 2 F]
  at::Tensor swiglu;                  // [T, F]
  at::Tensor down_gradient;           // [T, H]

  int64_t bytes() const;
};

// [t, H] -> [t, H]. `kept.input` shares x. An evaluation passes {.full = true} and drops `kept`: everything
// is then freed on the way.
at::Tensor layer_forward(const Context& ctx, const LayerWeights& weights, at::Tensor x,
                         const TokenPlaces& places, const model::Recompute& recompute,
                         LayerActivations& kept);

// Gradient of the output -> gradient of the input, both [t, H]. Adds the norms' weight gradients; with
// sequence parallel they are those of this rank's tokens alone: the caller sums them over tp. Without, every
// rank of tp holds the whole. Takes the activations and frees what backward_weight does not need; `dy`, where
// the caller moves it, is freed on the way. `places` and `recompute` as in forward.
at::Tensor layer_backward_input(const Context& ctx, const LayerWeights& weights, LayerActivations&& kept,
                                at::Tensor dy, const TokenPlaces& places, const model::Recompute& recompute,
                                LayerGradients& gradients, WeightStash& stash);

// Adds the four matrices' gradients. Takes the stash and frees each part after its use.
void layer_backward_weight(const Context& ctx, const LayerWeights& weights, WeightStash&& stash,
                           const model::Recompute& recompute, LayerGradients& gradients);

}  // namespace lockstep::nn
