// Causal grouped-query attention, within documents, over a block of queries at a time, so that scores stay in
// the cache; computes in float (double for double). Backward computes the probabilities again from the
// log-sum-exp, as FlashAttention-2 does (arXiv:2307.08691). Sums run in a fixed order. T is Bf16, float or
// double.
#pragma once

#include <cstdint>

#include "nn/element.hpp"

namespace lockstep::nn::kernel {

struct AttentionShape {
  int64_t batch = 0;     // sequences
  int64_t sequence = 0;  // S: tokens, and keys, of each
  int64_t cp = 1;        // ranks that share a sequence, as nn/token_places.hpp says; above 1, 2 cp divides S
  int64_t heads = 0;  // query heads, a multiple of kv_heads; query head i uses kv head i / (heads / kv_heads)
  int64_t kv_heads = 0;
  int64_t head_dim = 0;

  int64_t queries() const { return sequence / cp; }  // of a sequence, on one rank
};

// This rank's queries and all keys and values of their sequences; widths are elements from row to row.
template <class T>
struct AttentionInput {
  const T* q = nullptr;  // [batch S/cp, heads head_dim]
  int64_t q_width = 0;
  const T* kv = nullptr;  // [cp batch S/cp, 2 kv_heads head_dim], rank after rank: all k heads, all v heads
  int64_t kv_width = 0;
  // Of each query, places in its sequence: it sees first_key .. own_key. Neither may descend within a chunk.
  const int64_t* first_key = nullptr;
  const int64_t* own_key = nullptr;
};

// out [batch S/cp, heads head_dim]; log_sum_exp [batch S/cp, heads] of scores / sqrt(head_dim).
template <class T>
void attention(const AttentionShape& shape, const AttentionInput<T>& in, T* out, Arithmetic<T>* log_sum_exp);

// Rows and widths as of q and kv in AttentionInput. The gradient of keys and values is this rank's queries'
// part of the whole sequence's, zero where they see nothing. G is T or Arithmetic<T>.
template <class T, class G>
struct AttentionGradient {
  T* q = nullptr;
  int64_t q_width = 0;
  G* kv = nullptr;
  int64_t kv_width = 0;
};

template <class T, class G>
void attention_backward(const AttentionShape& shape, const AttentionInput<T>& in, const T* out,
                        const Arithmetic<T>* log_sum_exp, const T* out_gradient,
                        const AttentionGradient<T, G>& gradient);

}  // namespace lockstep::nn::kernel
