#include "nn/layer_kernels.hpp"

#include <memory>

namespace lockstep::nn::kernel {

namespace {

template <class T>
Arithmetic<T> reciprocal_root_mean_square(const T* row, int64_t width, double eps) {
  using R = Arithmetic<T>;
  const R squares = sum_of<R>(width, [&](int64_t i) {
    const R value = load(row[i]);
    return value * value;
  });
  return R(1) / std::sqrt(squares / R(width) + R(eps));
}

template <class R>
R sigmoid(R x) {
  return R(1) / (R(1) + exp_of(-x));
}

// Rows are functions of their own: GCC trusts __restrict on parameters alone, and vectorises only with it.

template <class T>
void turn_head(T* __restrict low, T* __restrict high, const Arithmetic<T>* __restrict cos,
               const Arithmetic<T>* __restrict sin, Arithmetic<T> sign, int64_t half) {
  using R = Arithmetic<T>;
  for (int64_t i = 0; i < half; ++i) {
    const R a = load(low[i]), b = load(high[i]), turn = sign * sin[i];
    store(low[i], a * cos[i] - b * turn);
    store(high[i], b * cos[i] + a * turn);
  }
}

template <class T>
void swiglu_row(const T* __restrict gates, const T* __restrict ups, T* __restrict y, int64_t width) {
  using R = Arithmetic<T>;
  for (int64_t i = 0; i < width; ++i) {
    const R gate = load(gates[i]);
    store(y[i], gate * sigmoid(gate) * load(ups[i]));
  }
}

template <class T>
void swiglu_backward_row(const T* __restrict gates, const T* __restrict ups, const T* __restrict dy,
                         T* __restrict gate_gradient, T* __restrict up_gradient, int64_t width) {
  using R = Arithmetic<T>;
  for (int64_t i = 0; i < width; ++i) {
    const R gate = load(gates[i]), out = load(dy[i]);
    const R s = sigmoid(gate);
    store(up_gradient[i], out * gate * s);
    store(gate_gradient[i], out * load(ups[i]) * s * (R(1) + gate * (R(1) - s)));
  }
}

}  // namespace

template <class T>
void rms_norm(const T* x, const T* weight, T* y, int64_t rows, int64_t width, double eps) {
  using R = Arithmetic<T>;
  for (int64_t row = 0; row < rows; ++row, x += width, y += width) {
    const R scale = reciprocal_root_mean_square(x, width, eps);
    for (int64_t i = 0; i < width; ++i) store(y[i], load(x[i]) * scale * load(weight[i]));
  }
}

template <class T>
void rms_norm_backward(const T* x, const T* weight, const T* dy, const T* residual, T* dx,
                       Arithmetic<T>* weight_gradient, int64_t rows, int64_t width, double eps) {
  using R = Arithmetic<T>;
  // A micro-batch's part is summed first, so that adding it to a large total rounds once.
  const auto part = std::make_unique<R[]>(static_cast<size_t>(width));
  for (int64_t row = 0; row < rows; ++row, x += width, dy += width, dx += width) {
    const R scale = reciprocal_root_mean_square(x, width, eps);
    const R mean = sum_of<R>(width, [&](int64_t i) { return load(dy[i]) * load(weight[i]) * load(x[i]); }) *
                   scale / R(width);
    R* const sums = part.get();
    for (int64_t i = 0; i < width; ++i) sums[i] += load(dy[i]) * (load(x[i]) * scale);
    if (residual == nullptr) {
      for (int64_t i = 0; i < width; ++i) {
        store(dx[i], scale * (load(dy[i]) * load(weight[i]) - load(x[i]) * scale * mean));
      }
    } else {
      for (int64_t i = 0; i < width; ++i) {
        store(dx[i], load(residual[i]) + scale * (load(dy[i]) * load(weight[i]) - load(x[i]) * scale * mean));
      }
      residual += width;
    }
  }
  for (int64_t i = 0; i < width; ++i) weight_gradient[i] += part[static_cast<size_t>(i)];
}

template <class T>
void rope(T* x, const Arithmetic<T>* cos, const Arithmetic<T>* sin, const int64_t* positions, int64_t rows,
          int64_t row_width, int64_t heads, int64_t head_dim, int direction) {
  using R = Arithmetic<T>;
  const int64_t half = head_dim / 2;
  const R sign = R(direction);
  for (int64_t row = 0; row < rows; ++row) {
    const int64_t angles = positions[row] * half;
    for (int64_t head = 0; head < heads; ++head) {
      T* const low = x + row * row_width + head * head_dim;
      turn_head(low, low + half, cos + angles, sin + angles, sign, half);
    }
  }
}

template <class T>
void swiglu(const T* gate_up, T* y, int64_t rows, int64_t width) {
  for (int64_t row = 0; row < rows; ++row, gate_up += 2 * width, y += width) {
    swiglu_row(gate_up, gate_up + width, y, width);
  }
}

template <class T>
void swiglu_backward(const T* gate_up, const T* dy, T* gate_up_gradient, int64_t rows, int64_t width) {
  for (int64_t row = 0; row < rows; ++row, gate_up += 2 * width, gate_up_gradient += 2 * width, dy += width) {
    swiglu_backward_row(gate_up, gate_up + width, dy, gate_up_gradient, gate_up_gradient + width, width);
  }
}

template <class T>
void accumulate(const T* part, Arithmetic<T>* total, int64_t count) {
  for (int64_t i = 0; i < count; ++i) total[i] += load(part[i]);
}

#define LOCKSTEP_INSTANTIATE(T)                                                                        \
  template void rms_norm(const T*, const T*, T*, int64_t, int64_t, double);                            \
  template void rms_norm_backward(const T*, const T*, const T*, const T*, T*, Arithmetic<T>*, int64_t, \
                                  int64_t, double);                                                    \
  template void rope(T*, const Arithmetic<T>*, const Arithmetic<T>*, const int64_t*, int64_t, int64_t, \
                     int64_t, int64_t, int);                                                           \
  template void swiglu(const T*, T*, int64_t, int64_t);                                                \
  template void swiglu_backward(const T*, const T*, T*, int64_t, int64_t);                             \
  template void accumulate(const T*, Arithmetic<T>*, int64_t);
LOCKSTEP_INSTANTIATE(Bf16)
LOCKSTEP_INSTANTIATE(float)
LOCKSTEP_INSTANTIATE(double)
#undef LOCKSTEP_INSTANTIATE

}  // namespace lockstep::nn::kernel
