#include "nn/head.hpp"

#include "nn/ops.hpp"
#include "nn/tensor_parallel.hpp"
#include "nn/vocabulary_kernels.hpp"

namespace lockstep::nn {

namespace {

// Sum of the losses; leaves the log-sum-exp of every token.
double cross_entropy(const Context& ctx, const at::Tensor& logits, const at::Tensor& targets,
                     at::Tensor& log_sum_exp) {
  const int64_t tokens = logits.size(0), vocab = logits.size(1), first = ctx.tp_rank() * vocab;
  log_sum_exp = ctx.empty_statistic({tokens});
  at::Tensor sums = ctx.empty_statistic({2, tokens});  // of exponentials, and the target's logit
  return dispatch(ctx.dtype, [&]<class T>() {
    using R = Arithmetic<T>;
    auto* const maximum = pointer<R>(log_sum_exp);
    auto* const sum = pointer<R>(sums);
    const auto* const target = pointer<int64_t>(targets);
    {
      OpScope scope(ctx.log, "loss_max", {logits});
      kernel::row_max(pointer<T>(logits), maximum, tokens, vocab);
      scope.result(log_sum_exp);
    }
    tp_all_reduce(ctx, log_sum_exp, comm::ReduceOp::max);
    {
      OpScope scope(ctx.log, "loss_sum", {logits, targets, log_sum_exp});
      kernel::exp_sum(pointer<T>(logits), target, maximum, sum, sum + tokens, tokens, vocab, first);
      scope.result(sums);
    }
    tp_all_reduce(ctx, sums, comm::ReduceOp::sum);
    return kernel::loss_of(target, sum, sum + tokens, maximum, tokens);
  });
}

}  // namespace

int64_t HeadActivations::bytes() const {
  int64_t bytes = 0;
  for (const at::Tensor* tensor : {&input, &normed, &logits, &log_sum_exp, &targets}) {
    if (tensor->defined()) bytes += static_cast<int64_t>(tensor->nbytes());
  }
  return bytes;
}

double head_forward(const Context& ctx, const HeadWeights& w, const at::Tensor& x, const at::Tensor& targets,
                    HeadActivations& kept) {
  check_tokens(targets, -1, w.output.size(0) * ctx.shape.tp, "target");
  kept.input = x;
  kept.targets = targets;
  kept.normed = rms_norm(ctx, "final_norm", x, w.norm);
  kept.logits = linear(ctx, "head_gemm", tp_gather(ctx, kept.normed), w.output);
  return cross_entropy(ctx, kept.logits, targets, kept.log_sum_exp);
}

at::Tensor head_backward(const Context& ctx, const HeadWeights& w, HeadActivations&& activations,
                         double scale, HeadGradients& gradients) {
  const HeadActivations kept = std::move(activations);
  const int64_t tokens = kept.logits.size(0), vocab = kept.logits.size(1);
  {
    OpScope scope(ctx.log, "loss_backward", {kept.targets, kept.log_sum_exp});
    dispatch(ctx.dtype, [&]<class T>() {
      kernel::loss_backward(pointer<T>(kept.logits), pointer<int64_t>(kept.targets),
                            pointer<Arithmetic<T>>(kept.log_sum_exp), scale, tokens, vocab,
                            ctx.tp_rank() * vocab);
    });
    scope.accumulated(kept.logits);
  }
  const at::Tensor& logits_gradient = kept.logits;
  at::Tensor d = linear_input_gradient(ctx, "head_gemm_dgrad", logits_gradient, w.output);
  d = tp_reduce(ctx, std::move(d));
  at::Tensor dx = rms_norm_backward(ctx, "final_norm_backward", kept.input, w.norm, d, {}, gradients.norm);
  linear_weight_gradient(ctx, "head_gemm_wgrad", logits_gradient, tp_gather(ctx, kept.normed),
                         gradients.output);
  return dx;
}

}  // namespace lockstep::nn
