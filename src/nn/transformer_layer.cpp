#include "nn/transformer_layer.hpp"

#include "nn/attention.hpp"
#include "nn/layer_kernels.hpp"
#include "nn/ops.hpp"
#include "nn/tensor_parallel.hpp"

namespace lockstep::nn {

namespace {

using model::Keeps;

at::Tensor swiglu(const Context& ctx, const at::Tensor& gate_up) {
  OpScope scope(ctx.log, "swiglu", {gate_up});
  at::Tensor y = ctx.empty({gate_up.size(0), ctx.shape.ffn});
  dispatch(ctx.dtype, [&]<class T>() {
    kernel::swiglu(pointer<T>(gate_up), pointer<T>(y), gate_up.size(0), ctx.shape.ffn);
  });
  scope.result(y);
  return y;
}

at::Tensor swiglu_backward(const Context& ctx, const at::Tensor& gate_up, const at::Tensor& dy) {
  OpScope scope(ctx.log, "swiglu_backward", {gate_up, dy});
  at::Tensor gate_up_gradient = at::empty(gate_up.sizes(), gate_up.options());
  dispatch(ctx.dtype, [&]<class T>() {
    kernel::swiglu_backward(pointer<T>(gate_up), pointer<T>(dy), pointer<T>(gate_up_gradient),
                            gate_up.size(0), ctx.shape.ffn);
  });
  scope.result(gate_up_gradient);
  return gate_up_gradient;
}

void drop_unless(bool keep, at::Tensor& tensor) {
  if (!keep) tensor.reset();
}

// From the layer's input to the sum behind attention, kept.ffn_input. Returns the gathered keys and values
// where `keep_keys`.
at::Tensor attention_block(const Context& ctx, const LayerWeights& w, const TokenPlaces& places,
                           const Keeps& keeps, bool keep_keys, LayerActivations& kept) {
  kept.qkv = linear(ctx, "qkv_gemm",
                    product_input(ctx, "attention_norm", kept.input, w.attention_norm,
                                  keeps.norm ? &kept.attention_normed : nullptr),
                    w.qkv);
  rope(ctx, "rope", kept.qkv, places, 1);
  at::Tensor keys = gather_keys(ctx, kept.qkv);
  kept.attention_output = attention(ctx, kept.qkv, keys, places, kept.log_sum_exp);
  drop_unless(keeps.rest, kept.qkv);
  drop_unless(keep_keys, keys);
  drop_unless(keeps.attention, kept.log_sum_exp);
  at::Tensor block = linear(ctx, "attention_out_gemm", kept.attention_output, w.attention_out);
  drop_unless(keeps.attention, kept.attention_output);
  kept.ffn_input = add(ctx, "attention_residual", kept.input, tp_reduce(ctx, std::move(block)));
  return keys;
}

// From kept.ffn_input to kept.swiglu, the input of the down product.
void swiglu_block(const Context& ctx, const LayerWeights& w, const Keeps& keeps, LayerActivations& kept) {
  kept.gate_up = linear(
      ctx, "gate_up_gemm",
      product_input(ctx, "ffn_norm", kept.ffn_input, w.ffn_norm, keeps.norm ? &kept.ffn_normed : nullptr),
      w.gate_up);
  kept.swiglu = swiglu(ctx, kept.gate_up);
  drop_unless(keeps.rest, kept.gate_up);
}

bool norms_again(const model::Recompute& r) { return r.norm && !r.full; }

}  // namespace

int64_t LayerActivations::bytes() const {
  return sum_of_bytes(
      {input, attention_normed, qkv, attention_output, log_sum_exp, ffn_input, ffn_normed, gate_up, swiglu});
}

int64_t WeightStash::bytes() const {
  return sum_of_bytes({qkv_input, gate_up_input, qkv_gradient, attention_output, attention_out_gradient,
                       gate_up_gradient, swiglu, down_gradient});
}

at::Tensor layer_forward(const Context& ctx, const LayerWeights& w, at::Tensor x, const TokenPlaces& places,
                         const model::Recompute& recompute, LayerActivations& kept) {
  const Keeps keeps(recompute);
  kept.input = std::move(x);
  attention_block(ctx, w, places, keeps, false, kept);
  swiglu_block(ctx, w, keeps, kept);
  at::Tensor block = linear(ctx, "down_gemm", kept.swiglu, w.down);
  drop_unless(keeps.activation, kept.swiglu);
  at::Tensor y = add(ctx, "ffn_residual", kept.ffn_input, tp_reduce(ctx, std::move(block)));
  drop_unless(keeps.rest, kept.ffn_input);
  return y;
}

at::Tensor layer_backward_input(const Context& ctx, const LayerWeights& w, LayerActivations&& activations,
                                at::Tensor dy, const TokenPlaces& places, const model::Recompute& r,
                                LayerGradients& gradients, WeightStash& stash) {
  LayerActivations kept = std::move(activations);
  at::Tensor keys;
  if (r.full) {
    const Keeps all({});
    keys = attention_block(ctx, w, places, all, true, kept);
    swiglu_block(ctx, w, all, kept);
  }
  stash.gate_up_input = norms_again(r) ? kept.ffn_input : take(kept.ffn_normed);
  stash.qkv_input = norms_again(r) ? kept.input : take(kept.attention_normed);

  stash.down_gradient = tp_gather(ctx, dy);
  at::Tensor d = linear_input_gradient(ctx, "down_gemm_dgrad", stash.down_gradient, w.down);
  stash.swiglu = r.activation && !r.full ? swiglu(ctx, kept.gate_up) : take(kept.swiglu);
  stash.gate_up_gradient = swiglu_backward(ctx, take(kept.gate_up), take(d));
  d = tp_reduce(ctx, linear_input_gradient(ctx, "gate_up_gemm_dgrad", stash.gate_up_gradient, w.gate_up));
  at::Tensor residual = rms_norm_backward(ctx, "ffn_norm_backward", take(kept.ffn_input), w.ffn_norm, take(d),
                                          take(dy), gradients.ffn_norm);

  stash.attention_out_gradient = tp_gather(ctx, residual);
  d = linear_input_gradient(ctx, "attention_out_gemm_dgrad", stash.attention_out_gradient, w.attention_out);
  if (!r.full) keys = gather_keys(ctx, kept.qkv);
  if (r.attention && !r.full) {
    kept.attention_output = attention(ctx, kept.qkv, keys, places, kept.log_sum_exp);
  }
  stash.attention_output = kept.attention_output;
  stash.qkv_gradient = attention_backward(
      ctx, {take(kept.qkv), take(keys), take(kept.attention_output), take(kept.log_sum_exp)}, take(d),
      places);
  rope(ctx, "rope_backward", stash.qkv_gradient, places, -1);
  d = tp_reduce(ctx, linear_input_gradient(ctx, "qkv_gemm_dgrad", stash.qkv_gradient, w.qkv));
  return rms_norm_backward(ctx, "attention_norm_backward", take(kept.input), w.attention_norm, take(d),
                           take(residual), gradients.attention_norm);
}

void layer_backward_weight(const Context& ctx, const LayerWeights& w, WeightStash&& stash,
                           const model::Recompute& r, LayerGradients& gradients) {
  WeightStash s = std::move(stash);
  const auto product_input_again = [&](std::string_view norm_name, at::Tensor x, const at::Tensor& weight) {
    if (norms_again(r)) x = rms_norm(ctx, norm_name, x, weight);
    return gather_kept_input(ctx, x);
  };
  linear_weight_gradient(ctx, "down_gemm_wgrad", take(s.down_gradient), take(s.swiglu), gradients.down);
  at::Tensor x = product_input_again("ffn_norm", take(s.gate_up_input), w.ffn_norm);
  linear_weight_gradient(ctx, "gate_up_gemm_wgrad", take(s.gate_up_gradient), take(x), gradients.gate_up);
  linear_weight_gradient(ctx, "attention_out_gemm_wgrad", take(s.attention_out_gradient),
                         take(s.attention_output), gradients.attention_out);
  x = product_input_again("attention_norm", take(s.qkv_input), w.attention_norm);
  linear_weight_gradient(ctx, "qkv_gemm_wgrad", take(s.qkv_gradient), take(x), gradients.qkv);
}

}  // namespace lockstep::nn
