#include "nn/attention.hpp"

#include "nn/attention_kernels.hpp"
#include "nn/layer_kernels.hpp"
#include "nn/ops.hpp"

namespace lockstep::nn {

namespace {

kernel::AttentionShape attention_shape(const model::ShardShape& s) {
  return {s.tokens_all() / s.sequence, s.sequence, s.cp, s.heads, s.kv_heads, s.head_dim};
}

at::Tensor query_columns(const model::ShardShape& s, const at::Tensor& qkv) {
  return qkv.narrow(1, 0, s.heads * s.head_dim);
}
at::Tensor key_columns(const model::ShardShape& s, const at::Tensor& qkv) {
  return qkv.narrow(1, s.heads * s.head_dim, s.kv_width());
}

template <class T>
kernel::AttentionInput<T> input(const Context& ctx, const at::Tensor& qkv, const at::Tensor& keys,
                                const TokenPlaces& places) {
  const model::ShardShape& s = ctx.shape;
  const T* const q = pointer<T>(qkv);
  return {.q = q,
          .q_width = s.qkv_width(),
          .kv = keys.defined() ? pointer<T>(keys) : q + s.heads * s.head_dim,
          .kv_width = keys.defined() ? s.kv_width() : s.qkv_width(),
          .first_key = pointer<int64_t>(places.first_key),
          .own_key = pointer<int64_t>(places.own_key)};
}

// What attention reads: all of qkv, or its q columns and the gathered keys and values.
void read_input(OpScope& scope, const model::ShardShape& s, const at::Tensor& qkv, const at::Tensor& keys) {
  scope.elements(qkv, keys.defined() ? s.tokens * s.heads * s.head_dim : qkv.numel());
  if (keys.defined()) scope.elements(keys, keys.numel());
}

// Both gradients into the columns of qkv's.
at::Tensor backward_whole(const Context& ctx, const AttentionKept& kept, const at::Tensor& out_gradient,
                          const TokenPlaces& places) {
  const model::ShardShape& s = ctx.shape;
  OpScope scope(ctx.log, "attention_backward", {kept.qkv, kept.out, kept.log_sum_exp, out_gradient});
  at::Tensor gradient = at::empty(kept.qkv.sizes(), kept.qkv.options());
  dispatch(ctx.dtype, [&]<class T>() {
    T* const q = pointer<T>(gradient);
    kernel::attention_backward(
        attention_shape(s), input<T>(ctx, kept.qkv, {}, places), pointer<T>(kept.out),
        pointer<Arithmetic<T>>(kept.log_sum_exp), pointer<T>(out_gradient),
        kernel::AttentionGradient<T, T>{q, s.qkv_width(), q + s.heads * s.head_dim, s.qkv_width()});
  });
  scope.result(gradient);
  return gradient;
}

// That of the queries into qkv_gradient's columns; returns that of all keys and values, gradient dtype.
at::Tensor backward_cut(const Context& ctx, const AttentionKept& kept, const at::Tensor& out_gradient,
                        const TokenPlaces& places, at::Tensor& qkv_gradient) {
  const model::ShardShape& s = ctx.shape;
  OpScope scope(ctx.log, "attention_backward", {kept.out, kept.log_sum_exp, out_gradient});
  read_input(scope, s, kept.qkv, kept.keys);
  at::Tensor key_gradient = at::empty({s.tokens_all(), s.kv_width()}, ctx.gradient_dtype);
  dispatch(ctx.dtype, [&]<class T>() {
    using R = Arithmetic<T>;
    kernel::attention_backward(attention_shape(s), input<T>(ctx, kept.qkv, kept.keys, places),
                               pointer<T>(kept.out), pointer<R>(kept.log_sum_exp), pointer<T>(out_gradient),
                               kernel::AttentionGradient<T, R>{pointer<T>(qkv_gradient), s.qkv_width(),
                                                               pointer<R>(key_gradient), s.kv_width()});
  });
  scope.result(query_columns(s, qkv_gradient));
  scope.result(key_gradient);
  return key_gradient;
}

// Sums all ranks' gradients of all keys and values; this rank's own tokens' go into qkv_gradient's columns.
void scatter_key_gradient(const Context& ctx, at::Tensor key_gradient, at::Tensor& qkv_gradient) {
  const model::ShardShape& s = ctx.shape;
  at::Tensor own = at::empty({s.tokens, s.kv_width()}, key_gradient.options());
  {
    OpScope scope(ctx.log, "cp_reduce_scatter", Stream::cp, static_cast<int64_t>(key_gradient.nbytes()));
    ctx.cp->reduce_scatter(key_gradient.data_ptr(), own.data_ptr(), static_cast<size_t>(own.numel()),
                           data_type(own.scalar_type()), comm::ReduceOp::sum, {.name = "cp_reduce_scatter"});
    scope.check(own);
  }
  key_gradient.reset();
  OpScope scope(ctx.log, "kv_unpack", {own});
  at::Tensor columns = key_columns(s, qkv_gradient);
  columns.copy_(own);
  scope.result(columns);
}

}  // namespace

void rope(const Context& ctx, std::string_view name, at::Tensor& qkv, const TokenPlaces& places,
          int direction) {
  const model::ShardShape& s = ctx.shape;
  const int64_t turned = s.heads + s.kv_heads;
  OpScope scope(ctx.log, name, {});
  if (ctx.log != nullptr && ctx.log->active()) scope.accumulated(qkv.narrow(1, 0, turned * s.head_dim));
  dispatch(ctx.dtype, [&]<class T>() {
    kernel::rope(pointer<T>(qkv), pointer<Arithmetic<T>>(ctx.rope_cos), pointer<Arithmetic<T>>(ctx.rope_sin),
                 pointer<int64_t>(places.position), qkv.size(0), qkv.size(1), turned, s.head_dim, direction);
  });
}

at::Tensor gather_keys(const Context& ctx, const at::Tensor& qkv) {
  const model::ShardShape& s = ctx.shape;
  if (ctx.cp == nullptr) return {};
  at::Tensor packed;
  {
    OpScope scope(ctx.log, "kv_pack", {});
    const at::Tensor columns = key_columns(s, qkv);
    packed = columns.contiguous();
    scope.elements(columns, columns.numel());
    scope.result(packed);
  }
  at::Tensor keys = ctx.empty({s.tokens_all(), s.kv_width()});
  OpScope scope(ctx.log, "cp_all_gather", Stream::cp, static_cast<int64_t>(keys.nbytes()));
  ctx.cp->all_gather(packed.data_ptr(), keys.data_ptr(), static_cast<size_t>(packed.numel()),
                     data_type(ctx.dtype), {.name = "cp_all_gather"});
  scope.check(keys);
  return keys;
}

at::Tensor attention(const Context& ctx, const at::Tensor& qkv, const at::Tensor& keys,
                     const TokenPlaces& places, at::Tensor& log_sum_exp) {
  const model::ShardShape& s = ctx.shape;
  OpScope scope(ctx.log, "attention", {});
  read_input(scope, s, qkv, keys);
  at::Tensor out = ctx.empty({s.tokens, s.heads * s.head_dim});
  log_sum_exp = ctx.empty_statistic({s.tokens, s.heads});
  dispatch(ctx.dtype, [&]<class T>() {
    kernel::attention(attention_shape(s), input<T>(ctx, qkv, keys, places), pointer<T>(out),
                      pointer<Arithmetic<T>>(log_sum_exp));
  });
  scope.result(out);
  scope.result(log_sum_exp);
  return out;
}

at::Tensor attention_backward(const Context& ctx, AttentionKept kept, at::Tensor out_gradient,
                              const TokenPlaces& places) {
  if (ctx.cp == nullptr) return backward_whole(ctx, kept, out_gradient, places);
  at::Tensor qkv_gradient = at::empty(kept.qkv.sizes(), kept.qkv.options());
  at::Tensor key_gradient = backward_cut(ctx, kept, out_gradient, places, qkv_gradient);
  kept = {};
  out_gradient.reset();
  scatter_key_gradient(ctx, std::move(key_gradient), qkv_gradient);
  return qkv_gradient;
}

}  // namespace lockstep::nn
