// A matrix product for operands that lie in the cache, written with GCC's vector types: a 6 x 2-vector tile
// of the result stays in registers.
#pragma once

#include <cstdint>

#include "nn/element.hpp"

namespace lockstep::nn::kernel {

// Columns of b and c are padded to a multiple of this (elements; 2 vectors of float, 4 of double).
inline constexpr int64_t column_block = 16;
constexpr int64_t padded(int64_t columns) {
  return (columns + column_block - 1) / column_block * column_block;
}

// Element (i, j) at data[i * row + j * column].
template <class R>
struct Strided {
  const R* data;
  int64_t row;
  int64_t column;
};

template <int rows, class R>
inline void product_tile(int64_t depth, Strided<R> a, const R* b, int64_t b_row, R* c, int64_t c_row,
                         bool accumulate) {
  constexpr int lanes = vector_lanes<R>;
  Vector<R> sums[rows][2] = {};
  for (int64_t k = 0; k < depth; ++k, b += b_row, a.data += a.column) {
    const Vector<R> left_half = load_vector(b), right_half = load_vector(b + lanes);
    for (int i = 0; i < rows; ++i) {
      const R left = a.data[i * a.row];
      sums[i][0] += left * left_half;
      sums[i][1] += left * right_half;
    }
  }
  for (int i = 0; i < rows; ++i, c += c_row) {
    if (accumulate) {
      sums[i][0] += load_vector(c);
      sums[i][1] += load_vector(c + lanes);
    }
    store_vector(c, sums[i][0]);
    store_vector(c + lanes, sums[i][1]);
  }
}

// c [m, n] = a [m, depth] x b [depth, n], or += where `accumulate`. Rows of b and c must be readable and
// writable up to padded(n).
template <class R>
void small_product(int64_t m, int64_t n, int64_t depth, Strided<R> a, const R* b, int64_t b_row, R* c,
                   int64_t c_row, bool accumulate) {
  constexpr int64_t rows = 6;
  constexpr int64_t columns = 2 * vector_lanes<R>;
  for (int64_t j = 0; j < n; j += columns) {
    Strided<R> left = a;
    int64_t i = 0;
    for (; i + rows <= m; i += rows, left.data += rows * a.row) {
      product_tile<rows>(depth, left, b + j, b_row, c + i * c_row + j, c_row, accumulate);
    }
    R* const rest = c + i * c_row + j;
    switch (m - i) {
      case 5:
        product_tile<5>(depth, left, b + j, b_row, rest, c_row, accumulate);
        break;
      case 4:
        product_tile<4>(depth, left, b + j, b_row, rest, c_row, accumulate);
        break;
      case 3:
        product_tile<3>(depth, left, b + j, b_row, rest, c_row, accumulate);
        break;
      case 2:
        product_tile<2>(depth, left, b + j, b_row, rest, c_row, accumulate);
        break;
      case 1:
        product_tile<1>(depth, left, b + j, b_row, rest, c_row, accumulate);
        break;
      default:
        break;
    }
  }
}

}  // namespace lockstep::nn::kernel
