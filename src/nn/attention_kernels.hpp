// Causal grouped-query attention over a block of queries at a time, so that scores stay in the cache;
// computes in float (double for double). Backward computes the probabilities again from the log-sum-exp, as
// FlashAttention-2 does (arXiv:2307.08691). T is Bf16, float or double.
#pragma once

#include <cstdint>

#include "nn/element.hpp"

namespace lockstep::nn::kernel {

struct AttentionShape {
  int64_t batch = 0;     // sequences
  int64_t sequence = 0;  // tokens of each
  int64_t heads = 0;  // query heads, a multiple of kv_heads; query head i uses kv head i / (heads / kv_heads)
  int64_t kv_heads = 0;
  int64_t head_dim = 0;

  int64_t qkv_width() const { return (heads + 2 * kv_heads) * head_dim; }
};

// qkv [batch sequence, qkv_width]: all q heads, all k heads, all v heads. out [batch sequence, heads
// head_dim]; log_sum_exp [batch sequence, heads] of scores / sqrt(head_dim).
template <class T>
void attention(const AttentionShape& shape, const T* qkv, T* out, Arithmetic<T>* log_sum_exp);

// Gradient of qkv given that of out.
template <class T>
void attention_backward(const AttentionShape& shape, const T* qkv, const T* out,
                        const Arithmetic<T>* log_sum_exp, const T* out_gradient, T* qkv_gradient);

}  // namespace lockstep::nn::kernel
