#include "nn/embedding.hpp"

#include <string>

#include "base/error.hpp"
#include "nn/ops.hpp"
#include "nn/tensor_parallel.hpp"
#include "nn/vocabulary_kernels.hpp"

namespace lockstep::nn {

int64_t EmbeddingActivations::bytes() const { return ids.defined() ? static_cast<int64_t>(ids.nbytes()) : 0; }

at::Tensor embedding_forward(const Context& ctx, const at::Tensor& weight, const at::Tensor& ids,
                             EmbeddingActivations& kept) {
  const int64_t vocab = weight.size(0), hidden = weight.size(1);
  check_tokens(ids, 0, ctx.shape.model_vocab, "token id");
  kept.ids = ids;
  at::Tensor y = ctx.empty({ids.size(0), hidden});
  {
    OpScope scope(ctx.log, "embedding", {ids});
    scope.elements(weight, y.numel() / ctx.shape.tp);  // a token's row is on one rank
    dispatch(ctx.dtype, [&]<class T>() {
      kernel::embedding(pointer<T>(weight), pointer<int64_t>(ids), pointer<T>(y), ids.size(0), hidden,
                        ctx.tp_rank() * vocab, vocab);
    });
    scope.result(y);
  }
  return tp_reduce(ctx, std::move(y));
}

void embedding_backward(const Context& ctx, EmbeddingActivations&& kept, at::Tensor dy,
                        at::Tensor& gradient) {
  const at::Tensor ids = std::exchange(kept.ids, {});
  const at::Tensor whole = tp_gather(ctx, dy);
  dy.reset();
  OpScope scope(ctx.log, "embedding_wgrad", {ids, whole});
  scope.elements(gradient, 2 * whole.numel() / ctx.shape.tp);
  const int64_t vocab = gradient.size(0);
  dispatch(ctx.dtype, [&]<class T>() {
    kernel::embedding_backward(pointer<T>(whole), pointer<int64_t>(ids), pointer<Arithmetic<T>>(gradient),
                               ids.size(0), gradient.size(1), ctx.tp_rank() * vocab, vocab);
  });
}

}  // namespace lockstep::nn
