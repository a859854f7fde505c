// Ops that layers are made of: each runs under its name in the op log. Internal to this room.
#pragma once

#include <ATen/ATen.h>

#include <functional>
#include <initializer_list>
#include <string_view>
#include <utility>

#include "nn/context.hpp"
#include "nn/element.hpp"

namespace lockstep::nn {

// Calls f<T>() with the kernels' element type of `type`.
template <class F>
decltype(auto) dispatch(at::ScalarType type, F&& f) {
  if (type == at::kBFloat16) return f.template operator()<Bf16>();
  if (type == at::kFloat) return f.template operator()<float>();
  TORCH_CHECK(type == at::kDouble, "no kernels for ", type);
  return f.template operator()<double>();
}

template <class T>
T* pointer(const at::Tensor& tensor) {
  TORCH_INTERNAL_ASSERT_DEBUG_ONLY(tensor.is_contiguous());
  return static_cast<T*>(tensor.data_ptr());
}

// Hands a tensor on and leaves nothing behind, so that its memory is free after the last use.
inline at::Tensor take(at::Tensor& tensor) { return std::exchange(tensor, {}); }

// Of those that are defined.
int64_t sum_of_bytes(std::initializer_list<std::reference_wrapper<const at::Tensor>> tensors);

// x [m, in] x weight^T [in, out], weight [out, in].
at::Tensor linear(const Context& ctx, std::string_view name, const at::Tensor& x, const at::Tensor& weight);
// Gradient of x: dy [m, out] x weight [out, in].
at::Tensor linear_input_gradient(const Context& ctx, std::string_view name, const at::Tensor& dy,
                                 const at::Tensor& weight);
// gradient [out, in] += dy^T x. In bf16 the micro-batch's product is summed in fp32 inside, rounded to bf16,
// and added to the fp32 gradient: LibTorch 1.13 has no product of bf16 operands into fp32. The rounding is no
// larger than that of the operands, and fp32 copies of them would avoid it at 2.4 to 3 times the cost (Zen 5,
// tiny.toml's shapes: qkv 145 us against 52, gate_up 410 against 135, down 211 against 72).
void linear_weight_gradient(const Context& ctx, std::string_view name, const at::Tensor& dy,
                            const at::Tensor& x, at::Tensor& gradient);

at::Tensor rms_norm(const Context& ctx, std::string_view name, const at::Tensor& x, const at::Tensor& weight);
// Norm, then gathered over tp: what enters a column-parallel product. `kept`, if not null, gets what the
// weight's gradient will need: the norm's output, or with shape.keep_gathered the gathered one.
at::Tensor product_input(const Context& ctx, std::string_view norm_name, const at::Tensor& x,
                         const at::Tensor& norm_weight, at::Tensor* kept);
// `residual` is added to the result; an undefined tensor is none.
at::Tensor rms_norm_backward(const Context& ctx, std::string_view name, const at::Tensor& x,
                             const at::Tensor& weight, const at::Tensor& dy, const at::Tensor& residual,
                             at::Tensor& weight_gradient);

// RunError that names the first of `tokens` [T] int64 outside [low, high).
void check_tokens(const at::Tensor& tokens, int64_t low, int64_t high, const char* what);

at::Tensor add(const Context& ctx, std::string_view name, const at::Tensor& a, const at::Tensor& b);

}  // namespace lockstep::nn
