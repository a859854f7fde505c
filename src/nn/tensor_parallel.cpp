#include "nn/tensor_parallel.hpp"

namespace lockstep::nn {

at::Tensor tp_gather(const Context& ctx, const at::Tensor& x) {
  if (!ctx.shape.sequence_parallel) return x;
  at::Tensor whole = at::empty({x.size(0) * ctx.shape.tp, x.size(1)}, x.options());
  OpScope scope(ctx.log, "tp_all_gather", Stream::tp, static_cast<int64_t>(whole.nbytes()));
  ctx.tp->all_gather(x.data_ptr(), whole.data_ptr(), static_cast<size_t>(x.numel()),
                     data_type(x.scalar_type()), {.name = "tp_all_gather"});
  scope.check(whole);
  return whole;
}

at::Tensor tp_reduce(const Context& ctx, at::Tensor x) {
  if (ctx.tp == nullptr) return x;
  if (!ctx.shape.sequence_parallel) {
    tp_all_reduce(ctx, x, comm::ReduceOp::sum);
    return x;
  }
  at::Tensor part = at::empty({x.size(0) / ctx.shape.tp, x.size(1)}, x.options());
  OpScope scope(ctx.log, "tp_reduce_scatter", Stream::tp, static_cast<int64_t>(x.nbytes()));
  ctx.tp->reduce_scatter(x.data_ptr(), part.data_ptr(), static_cast<size_t>(part.numel()),
                         data_type(x.scalar_type()), comm::ReduceOp::sum, {.name = "tp_reduce_scatter"});
  scope.check(part);
  return part;
}

at::Tensor gather_kept_input(const Context& ctx, const at::Tensor& kept) {
  return ctx.shape.keep_gathered ? kept : tp_gather(ctx, kept);
}

void tp_all_reduce(const Context& ctx, at::Tensor& x, comm::ReduceOp op) {
  if (ctx.tp == nullptr) return;
  OpScope scope(ctx.log, "tp_all_reduce", Stream::tp, static_cast<int64_t>(x.nbytes()));
  ctx.tp->all_reduce(x.data_ptr(), static_cast<size_t>(x.numel()), data_type(x.scalar_type()), op,
                     {.name = "tp_all_reduce"});
  scope.check(x);
}

}  // namespace lockstep::nn
