#include "nn/head.hpp"

#include "nn/ops.hpp"
#include "nn/tensor_parallel.hpp"
#include "nn/vocabulary_kernels.hpp"

namespace lockstep::nn {

namespace {

// Sum of the losses; leaves the log-sum-exp of every token.
double cross_entropy(const Context& ctx, const at::Tensor& logits, const at::Tensor& targets,
                     at::Tensor& log_sum_exp) {
  const int64_t tokens = logits.size(0), width = logits.size(1), first = ctx.tp_rank() * width;
  const int64_t vocab = ctx.shape.vocab_rows(ctx.tp_rank());
  log_sum_exp = ctx.empty_statistic({tokens});
  at::Tensor sums = ctx.empty_statistic({2, tokens});  // of exponentials, and the target's logit
  return dispatch(ctx.dtype, [&]<class T>() {
    using R = Arithmetic<T>;
    auto* const maximum = pointer<R>(log_sum_exp);
    auto* const sum = pointer<R>(sums);
    const auto* const target = pointer<int64_t>(targets);
    {
      OpScope scope(ctx.log, "loss_max", {logits});
      kernel::row_max(pointer<T>(logits), maximum, tokens, width, vocab);
      scope.result(log_sum_exp);
    }
    tp_all_reduce(ctx, log_sum_exp, comm::ReduceOp::max);
    {
      OpScope scope(ctx.log, "loss_sum", {logits, targets, log_sum_exp});
      kernel::exp_sum(pointer<T>(logits), target, maximum, sum, sum + tokens, tokens, width, vocab, first);
      scope.result(sums);
    }
    tp_all_reduce(ctx, sums, comm::ReduceOp::sum);
    return kernel::loss_of(target, sum, sum + tokens, maximum, tokens);
  });
}

// In place: the logits' gradient.
void loss_backward(const Context& ctx, at::Tensor& logits, const at::Tensor& targets,
                   const at::Tensor& log_sum_exp) {
  const int64_t tokens = logits.size(0), width = logits.size(1);
  OpScope scope(ctx.log, "loss_backward", {targets, log_sum_exp});
  dispatch(ctx.dtype, [&]<class T>() {
    kernel::loss_backward(pointer<T>(logits), pointer<int64_t>(targets), pointer<Arithmetic<T>>(log_sum_exp),
                          tokens, width, ctx.shape.vocab_rows(ctx.tp_rank()), ctx.tp_rank() * width);
  });
  scope.accumulated(logits);
}

}  // namespace

int64_t HeadActivations::bytes() const { return sum_of_bytes({input, normed, logits, log_sum_exp, targets}); }

int64_t HeadStash::bytes() const { return sum_of_bytes({normed, logits_gradient}); }

double head_forward(const Context& ctx, const HeadWeights& w, at::Tensor x, const at::Tensor& targets,
                    HeadActivations& kept) {
  check_tokens(targets, -1, ctx.shape.model_vocab, "target");
  kept.input = std::move(x);
  kept.targets = targets;
  kept.logits =
      linear(ctx, "head_gemm", product_input(ctx, "final_norm", kept.input, w.norm, &kept.normed), w.output);
  return cross_entropy(ctx, kept.logits, targets, kept.log_sum_exp);
}

at::Tensor head_backward_input(const Context& ctx, const HeadWeights& w, HeadActivations&& activations,
                               HeadGradients& gradients, HeadStash& stash) {
  HeadActivations kept = std::move(activations);
  stash.normed = take(kept.normed);
  loss_backward(ctx, kept.logits, take(kept.targets), take(kept.log_sum_exp));
  stash.logits_gradient = take(kept.logits);
  const at::Tensor d =
      tp_reduce(ctx, linear_input_gradient(ctx, "head_gemm_dgrad", stash.logits_gradient, w.output));
  return rms_norm_backward(ctx, "final_norm_backward", take(kept.input), w.norm, d, {}, gradients.norm);
}

void head_backward_weight(const Context& ctx, HeadStash&& stash, HeadGradients& gradients) {
  HeadStash s = std::move(stash);
  linear_weight_gradient(ctx, "head_gemm_wgrad", take(s.logits_gradient),
                         gather_kept_input(ctx, take(s.normed)), gradients.output);
}

}  // namespace lockstep::nn
