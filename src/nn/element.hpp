// Element types of the kernels and the arithmetic in which they compute. No tensor library here: kernel files
// (*_kernels.cpp) are plain loops over raw pointers, compiled with -O3 and contraction to fused multiply-add.
#pragma once

#include <bit>
#include <cmath>
#include <concepts>
#include <cstdint>

namespace lockstep::nn {

// The upper half of an IEEE float.
struct Bf16 {
  uint16_t bits;
};

template <class T>
struct ArithmeticOf {
  using type = T;
};
template <>
struct ArithmeticOf<Bf16> {
  using type = float;
};
// What T is computed in: float for bf16 and float, double for double.
template <class T>
using Arithmetic = typename ArithmeticOf<T>::type;

template <std::floating_point T>
inline T load(T value) {
  return value;
}
inline float load(Bf16 value) { return std::bit_cast<float>(static_cast<uint32_t>(value.bits) << 16); }

template <std::floating_point T>
inline void store(T& to, T value) {
  to = value;
}
// To nearest, ties to even; NaN stays NaN.
inline void store(Bf16& to, float value) {
  const uint32_t bits = std::bit_cast<uint32_t>(value);
  const uint32_t rounded = (bits + 0x7FFFU + ((bits >> 16) & 1U)) >> 16;
  to.bits = static_cast<uint16_t>(value == value ? rounded : 0x7FC0U);
}

// exp to about one unit in the last place, in a form that compilers vectorise; arguments beyond about -87 and
// 88 give the value there (Cephes' expf: exp x = 2^n exp r, |r| <= ln 2 / 2).
inline float exp_of(float x) {
  x = x < -87.0F ? -87.0F : x;
  x = x > 88.0F ? 88.0F : x;
  constexpr float round_magic = 12582912.0F;  // 1.5 x 2^23: adding it rounds to an integer
  const float shifted = x * 1.44269504088896341F + round_magic;
  const float n = shifted - round_magic;
  const float r = (x - n * 0.693359375F) + n * 2.12194440e-4F;
  float p = 1.9875691500e-4F;
  p = p * r + 1.3981999507e-3F;
  p = p * r + 8.3334519073e-3F;
  p = p * r + 4.1665795894e-2F;
  p = p * r + 1.6666665459e-1F;
  p = p * r + 5.0000001201e-1F;
  const float mantissa = p * r * r + r + 1.0F;
  const int32_t exponent = std::bit_cast<int32_t>(shifted) - std::bit_cast<int32_t>(round_magic) + 127;
  return mantissa * std::bit_cast<float>(exponent << 23);
}
inline double exp_of(double x) { return std::exp(x); }

// GCC's vectors of 32 bytes, for the loops that it does not vectorise by itself.
template <class R>
struct VectorOf;
template <>
struct VectorOf<float> {
  typedef float type __attribute__((vector_size(32)));
  typedef float unaligned __attribute__((vector_size(32), aligned(4), may_alias));
};
template <>
struct VectorOf<double> {
  typedef double type __attribute__((vector_size(32)));
  typedef double unaligned __attribute__((vector_size(32), aligned(8), may_alias));
};
template <class R>
using Vector = typename VectorOf<R>::type;
template <class R>
inline constexpr int vector_lanes = 32 / static_cast<int>(sizeof(R));

template <std::floating_point R>
inline Vector<R> load_vector(const R* from) {
  return *reinterpret_cast<const typename VectorOf<R>::unaligned*>(from);
}
inline Vector<float> load_vector(const Bf16* from) {
  typedef uint16_t Halves __attribute__((vector_size(16), aligned(2), may_alias));
  typedef uint32_t Bits __attribute__((vector_size(32)));
  const Bits bits = __builtin_convertvector(*reinterpret_cast<const Halves*>(from), Bits) << 16;
  return reinterpret_cast<Vector<float>>(bits);
}
template <std::floating_point R>
inline void store_vector(R* to, Vector<R> value) {
  *reinterpret_cast<typename VectorOf<R>::unaligned*>(to) = value;
}

// Sum of f(0) .. f(n-1) in a fixed order that vectorises: 16 running sums, then those in a row.
template <class R, class F>
inline R sum_of(int64_t n, F f) {
  constexpr int lanes = 16;
  R sums[lanes] = {};
  int64_t i = 0;
  for (; i + lanes <= n; i += lanes) {
    for (int lane = 0; lane < lanes; ++lane) sums[lane] += f(i + lane);
  }
  for (; i < n; ++i) sums[i % lanes] += f(i);
  R sum = 0;
  for (const R part : sums) sum += part;
  return sum;
}

// Maximum of values[0] .. values[n-1]; n >= 1.
template <class T>
inline Arithmetic<T> max_of(const T* values, int64_t n) {
  using R = Arithmetic<T>;
  constexpr int lanes = vector_lanes<R>;
  R result = load(values[0]);
  int64_t i = 0;
  if (n >= lanes) {
    Vector<R> best = load_vector(values);
    for (i = lanes; i + lanes <= n; i += lanes) {
      const Vector<R> next = load_vector(values + i);
      best = next > best ? next : best;
    }
    for (int lane = 0; lane < lanes; ++lane) result = best[lane] > result ? best[lane] : result;
  }
  for (; i < n; ++i) {
    const R next = load(values[i]);
    result = next > result ? next : result;
  }
  return result;
}

}  // namespace lockstep::nn
