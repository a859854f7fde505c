#include "nn/ops.hpp"

#include <string>

#include "base/error.hpp"
#include "nn/layer_kernels.hpp"
#include "nn/tensor_parallel.hpp"

namespace lockstep::nn {

int64_t sum_of_bytes(std::initializer_list<std::reference_wrapper<const at::Tensor>> tensors) {
  int64_t bytes = 0;
  for (const at::Tensor& tensor : tensors) {
    if (tensor.defined()) bytes += static_cast<int64_t>(tensor.nbytes());
  }
  return bytes;
}

at::Tensor linear(const Context& ctx, std::string_view name, const at::Tensor& x, const at::Tensor& weight) {
  OpScope scope(ctx.log, name, {x, weight});
  at::Tensor y = at::mm(x, weight.t());
  scope.result(y);
  return y;
}

at::Tensor linear_input_gradient(const Context& ctx, std::string_view name, const at::Tensor& dy,
                                 const at::Tensor& weight) {
  OpScope scope(ctx.log, name, {dy, weight});
  at::Tensor dx = at::mm(dy, weight);
  scope.result(dx);
  return dx;
}

void linear_weight_gradient(const Context& ctx, std::string_view name, const at::Tensor& dy,
                            const at::Tensor& x, at::Tensor& gradient) {
  OpScope scope(ctx.log, name, {dy, x});
  scope.accumulated(gradient);
  if (ctx.dtype == ctx.gradient_dtype) {
    gradient.addmm_(dy.t(), x);
    return;
  }
  const at::Tensor part = at::mm(dy.t(), x);
  dispatch(ctx.dtype, [&]<class T>() {
    kernel::accumulate(pointer<T>(part), pointer<Arithmetic<T>>(gradient), part.numel());
  });
}

at::Tensor rms_norm(const Context& ctx, std::string_view name, const at::Tensor& x,
                    const at::Tensor& weight) {
  OpScope scope(ctx.log, name, {x, weight});
  at::Tensor y = at::empty(x.sizes(), x.options());
  dispatch(ctx.dtype, [&]<class T>() {
    kernel::rms_norm(pointer<T>(x), pointer<T>(weight), pointer<T>(y), x.size(0), x.size(1), ctx.norm_eps);
  });
  scope.result(y);
  return y;
}

at::Tensor product_input(const Context& ctx, std::string_view norm_name, const at::Tensor& x,
                         const at::Tensor& norm_weight, at::Tensor* kept) {
  const at::Tensor normed = rms_norm(ctx, norm_name, x, norm_weight);
  at::Tensor whole = tp_gather(ctx, normed);
  if (kept != nullptr) *kept = ctx.shape.keep_gathered ? whole : normed;
  return whole;
}

at::Tensor rms_norm_backward(const Context& ctx, std::string_view name, const at::Tensor& x,
                             const at::Tensor& weight, const at::Tensor& dy, const at::Tensor& residual,
                             at::Tensor& weight_gradient) {
  OpScope scope(ctx.log, name, {x, weight, dy});
  if (residual.defined()) scope.result(residual);
  at::Tensor dx = at::empty(x.sizes(), x.options());
  dispatch(ctx.dtype, [&]<class T>() {
    kernel::rms_norm_backward(pointer<T>(x), pointer<T>(weight), pointer<T>(dy),
                              residual.defined() ? pointer<T>(residual) : nullptr, pointer<T>(dx),
                              pointer<Arithmetic<T>>(weight_gradient), x.size(0), x.size(1), ctx.norm_eps);
  });
  scope.result(dx);
  scope.accumulated(weight_gradient);
  return dx;
}

void check_tokens(const at::Tensor& tokens, int64_t low, int64_t high, const char* what) {
  const auto* const values = pointer<int64_t>(tokens);
  for (int64_t i = 0; i < tokens.numel(); ++i) {
    if (values[i] < low || values[i] >= high) {
      throw RunError(std::string(what) + " " + std::to_string(values[i]) + " at position " +
                     std::to_string(i) + " of the micro-batch is not in " + std::to_string(low) + " .. " +
                     std::to_string(high - 1) + "; model.vocab must cover the tokenizer's");
    }
  }
}

at::Tensor add(const Context& ctx, std::string_view name, const at::Tensor& a, const at::Tensor& b) {
  OpScope scope(ctx.log, name, {a, b});
  at::Tensor sum = at::add(a, b);
  scope.result(sum);
  return sum;
}

}  // namespace lockstep::nn
