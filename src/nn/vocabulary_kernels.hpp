// Kernels over this rank's part of the vocabulary: rows (or logits) first .. first + width - 1. Tokens
// outside belong to other ranks. T is Bf16, float or double.
#pragma once

#include <cstdint>

#include "nn/element.hpp"

namespace lockstep::nn::kernel {

// y[t] = weight[ids[t] - first], or zeros where another rank holds the row.
template <class T>
void embedding(const T* weight, const int64_t* ids, T* y, int64_t tokens, int64_t hidden, int64_t first,
               int64_t vocab);
// gradient[ids[t] - first] += dy[t], tokens in ascending order.
template <class T>
void embedding_backward(const T* dy, const int64_t* ids, Arithmetic<T>* gradient, int64_t tokens,
                        int64_t hidden, int64_t first, int64_t vocab);

// Logits lie in rows of `width`, of which the first `vocab` (perhaps none) are this rank's and the others
// padding.

// maximum[t] = max of logits[t]; the type's lowest number where the rank has none.
template <class T>
void row_max(const T* logits, Arithmetic<T>* maximum, int64_t tokens, int64_t width, int64_t vocab);
// sum[t] = sum of exp(logits[t] - maximum[t]); target_logit[t] = the target's logit, 0 where it is elsewhere
// or -1.
template <class T>
void exp_sum(const T* logits, const int64_t* targets, const Arithmetic<T>* maximum, Arithmetic<T>* sum,
             Arithmetic<T>* target_logit, int64_t tokens, int64_t width, int64_t vocab, int64_t first);
// log_sum_exp[t] (in place of maximum) and the sum of losses over targets that are not -1.
template <class R>
double loss_of(const int64_t* targets, const R* sum, const R* target_logit, R* maximum_to_log_sum_exp,
               int64_t tokens);
// In place: logits -> softmax - one-hot target, 0 where the target is -1 and in the padding.
template <class T>
void loss_backward(T* logits, const int64_t* targets, const Arithmetic<T>* log_sum_exp, int64_t tokens,
                   int64_t width, int64_t vocab, int64_t first);

}  // namespace lockstep::nn::kernel
