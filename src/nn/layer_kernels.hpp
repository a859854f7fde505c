// Element-wise and row-wise kernels of a layer. All matrices are dense and row-major. T is Bf16, float or
// double.
#pragma once

#include <cstdint>

#include "nn/element.hpp"

namespace lockstep::nn::kernel {

// y = x / sqrt(mean(x^2) + eps) * weight for each of `rows` rows of `width` (RMSNorm, arXiv:1910.07467).
template <class T>
void rms_norm(const T* x, const T* weight, T* y, int64_t rows, int64_t width, double eps);

// dx = gradient of x given dy, plus `residual` (may be null); adds the weight's gradient.
template <class T>
void rms_norm_backward(const T* x, const T* weight, const T* dy, const T* residual, T* dx,
                       Arithmetic<T>* weight_gradient, int64_t rows, int64_t width, double eps);

// Rotary embedding (arXiv:2104.09864) in place, pairing element i of a head with i + head_dim / 2 as Hugging
// Face does. Turns the first `heads` heads of each row of `row_width`; row r stands at positions[r]. Row p
// of cos and sin [.., head_dim / 2] is position p. `direction` is 1, or -1 for backward.
template <class T>
void rope(T* x, const Arithmetic<T>* cos, const Arithmetic<T>* sin, const int64_t* positions, int64_t rows,
          int64_t row_width, int64_t heads, int64_t head_dim, int direction);

// gate_up [rows, 2 width], gate first: y [rows, width] = silu(gate) * up (arXiv:2002.05202).
template <class T>
void swiglu(const T* gate_up, T* y, int64_t rows, int64_t width);
template <class T>
void swiglu_backward(const T* gate_up, const T* dy, T* gate_up_gradient, int64_t rows, int64_t width);

// total += part.
template <class T>
void accumulate(const T* part, Arithmetic<T>* total, int64_t count);

}  // namespace lockstep::nn::kernel
