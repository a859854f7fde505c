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

// Maximum of f(0) .. f(n-1); n >= 1.
template <class R, class F>
inline R max_of(int64_t n, F f) {
  constexpr int lanes = 16;
  R best[lanes];
  for (R& value : best) value = f(0);
  int64_t i = 0;
  for (; i + lanes <= n; i += lanes) {
    for (int lane = 0; lane < lanes; ++lane) {
      const R value = f(i + lane);
      best[lane] = value > best[lane] ? value : best[lane];
    }
  }
  for (; i < n; ++i) best[0] = f(i) > best[0] ? f(i) : best[0];
  R result = best[0];
  for (const R value : best) result = value > result ? value : result;
  return result;
}

}  // namespace lockstep::nn
