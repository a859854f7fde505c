#include "nn/transformer_layer.hpp"

#include "nn/attention_kernels.hpp"
#include "nn/layer_kernels.hpp"
#include "nn/ops.hpp"
#include "nn/tensor_parallel.hpp"

namespace lockstep::nn {

namespace {

// Hands a tensor on and leaves nothing behind, so that its memory is free after the last use.
at::Tensor take(at::Tensor& tensor) { return std::exchange(tensor, {}); }

kernel::AttentionShape attention_shape(const model::ShardShape& s) {
  return {s.tokens / s.sequence, s.sequence, s.heads, s.kv_heads, s.head_dim};
}

// In place on the q and k columns of qkv [T, (h + 2 kv) D].
void rope(const Context& ctx, std::string_view name, at::Tensor& qkv, int direction) {
  const model::ShardShape& s = ctx.shape;
  const int64_t turned = s.heads + s.kv_heads;
  OpScope scope(ctx.log, name, {});
  if (ctx.log != nullptr && ctx.log->recording()) scope.accumulated(qkv.narrow(1, 0, turned * s.head_dim));
  dispatch(ctx.dtype, [&]<class T>() {
    kernel::rope(pointer<T>(qkv), pointer<Arithmetic<T>>(ctx.rope_cos), pointer<Arithmetic<T>>(ctx.rope_sin),
                 qkv.size(0), qkv.size(1), turned, s.head_dim, s.sequence, direction);
  });
}

at::Tensor attention(const Context& ctx, const at::Tensor& qkv, at::Tensor& log_sum_exp) {
  const model::ShardShape& s = ctx.shape;
  OpScope scope(ctx.log, "attention", {qkv});
  at::Tensor out = ctx.empty({s.tokens, s.heads * s.head_dim});
  log_sum_exp = ctx.empty_statistic({s.tokens, s.heads});
  dispatch(ctx.dtype, [&]<class T>() {
    kernel::attention(attention_shape(s), pointer<T>(qkv), pointer<T>(out),
                      pointer<Arithmetic<T>>(log_sum_exp));
  });
  scope.result(out);
  scope.result(log_sum_exp);
  return out;
}

at::Tensor attention_backward(const Context& ctx, const at::Tensor& qkv, const at::Tensor& out,
                              const at::Tensor& log_sum_exp, const at::Tensor& out_gradient) {
  OpScope scope(ctx.log, "attention_backward", {qkv, out, log_sum_exp, out_gradient});
  at::Tensor qkv_gradient = at::empty(qkv.sizes(), qkv.options());
  dispatch(ctx.dtype, [&]<class T>() {
    kernel::attention_backward(attention_shape(ctx.shape), pointer<T>(qkv), pointer<T>(out),
                               pointer<Arithmetic<T>>(log_sum_exp), pointer<T>(out_gradient),
                               pointer<T>(qkv_gradient));
  });
  scope.result(qkv_gradient);
  return qkv_gradient;
}

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

int64_t sum_of_bytes(std::initializer_list<std::reference_wrapper<const at::Tensor>> tensors) {
  int64_t bytes = 0;
  for (const at::Tensor& tensor : tensors) {
    if (tensor.defined()) bytes += static_cast<int64_t>(tensor.nbytes());
  }
  return bytes;
}

}  // namespace

int64_t LayerActivations::bytes() const {
  return sum_of_bytes(
      {input, attention_normed, qkv, attention_output, log_sum_exp, ffn_input, ffn_normed, gate_up, swiglu});
}

int64_t WeightStash::bytes() const {
  return sum_of_bytes({attention_normed, qkv_gradient, attention_output, attention_out_gradient, ffn_normed,
                       gate_up_gradient, swiglu, down_gradient});
}

at::Tensor layer_forward(const Context& ctx, const LayerWeights& w, const at::Tensor& x,
                         LayerActivations& kept) {
  kept.input = x;
  kept.attention_normed = rms_norm(ctx, "attention_norm", x, w.attention_norm);
  kept.qkv = linear(ctx, "qkv_gemm", tp_gather(ctx, kept.attention_normed), w.qkv);
  rope(ctx, "rope", kept.qkv, 1);
  kept.attention_output = attention(ctx, kept.qkv, kept.log_sum_exp);
  at::Tensor block =
      tp_reduce(ctx, linear(ctx, "attention_out_gemm", kept.attention_output, w.attention_out));
  kept.ffn_input = add(ctx, "attention_residual", x, block);

  kept.ffn_normed = rms_norm(ctx, "ffn_norm", kept.ffn_input, w.ffn_norm);
  kept.gate_up = linear(ctx, "gate_up_gemm", tp_gather(ctx, kept.ffn_normed), w.gate_up);
  kept.swiglu = swiglu(ctx, kept.gate_up);
  block = tp_reduce(ctx, linear(ctx, "down_gemm", kept.swiglu, w.down));
  return add(ctx, "ffn_residual", kept.ffn_input, block);
}

at::Tensor layer_backward_input(const Context& ctx, const LayerWeights& w, LayerActivations&& activations,
                                const at::Tensor& dy, LayerGradients& gradients, WeightStash& stash) {
  LayerActivations kept = std::move(activations);
  stash.swiglu = take(kept.swiglu);
  stash.ffn_normed = take(kept.ffn_normed);
  stash.attention_output = take(kept.attention_output);
  stash.attention_normed = take(kept.attention_normed);

  stash.down_gradient = tp_gather(ctx, dy);
  at::Tensor d = linear_input_gradient(ctx, "down_gemm_dgrad", stash.down_gradient, w.down);
  stash.gate_up_gradient = swiglu_backward(ctx, take(kept.gate_up), d);
  d = linear_input_gradient(ctx, "gate_up_gemm_dgrad", stash.gate_up_gradient, w.gate_up);
  d = tp_reduce(ctx, std::move(d));
  const at::Tensor residual = rms_norm_backward(ctx, "ffn_norm_backward", take(kept.ffn_input), w.ffn_norm, d,
                                                dy, gradients.ffn_norm);

  stash.attention_out_gradient = tp_gather(ctx, residual);
  d = linear_input_gradient(ctx, "attention_out_gemm_dgrad", stash.attention_out_gradient, w.attention_out);
  stash.qkv_gradient =
      attention_backward(ctx, take(kept.qkv), stash.attention_output, take(kept.log_sum_exp), d);
  rope(ctx, "rope_backward", stash.qkv_gradient, -1);
  d = linear_input_gradient(ctx, "qkv_gemm_dgrad", stash.qkv_gradient, w.qkv);
  d = tp_reduce(ctx, std::move(d));
  return rms_norm_backward(ctx, "attention_norm_backward", take(kept.input), w.attention_norm, d, residual,
                           gradients.attention_norm);
}

void layer_backward_weight(const Context& ctx, WeightStash&& stash, LayerGradients& gradients) {
  WeightStash s = std::move(stash);
  linear_weight_gradient(ctx, "down_gemm_wgrad", take(s.down_gradient), take(s.swiglu), gradients.down);
  linear_weight_gradient(ctx, "gate_up_gemm_wgrad", take(s.gate_up_gradient),
                         tp_gather(ctx, take(s.ffn_normed)), gradients.gate_up);
  linear_weight_gradient(ctx, "attention_out_gemm_wgrad", take(s.attention_out_gradient),
                         take(s.attention_output), gradients.attention_out);
  linear_weight_gradient(ctx, "qkv_gemm_wgrad", take(s.qkv_gradient),
                         tp_gather(ctx, take(s.attention_normed)), gradients.qkv);
}

}  // namespace lockstep::nn
