#include "nn/vocabulary_kernels.hpp"

#include <algorithm>
#include <limits>

namespace lockstep::nn::kernel {

template <class T>
void embedding(const T* weight, const int64_t* ids, T* y, int64_t tokens, int64_t hidden, int64_t first,
               int64_t vocab) {
  for (int64_t t = 0; t < tokens; ++t) {
    const int64_t row = ids[t] - first;
    if (row >= 0 && row < vocab) {
      std::copy_n(weight + row * hidden, hidden, y + t * hidden);
    } else {
      std::fill_n(y + t * hidden, hidden, T{});
    }
  }
}

template <class T>
void embedding_backward(const T* dy, const int64_t* ids, Arithmetic<T>* gradient, int64_t tokens,
                        int64_t hidden, int64_t first, int64_t vocab) {
  for (int64_t t = 0; t < tokens; ++t) {
    const int64_t row = ids[t] - first;
    if (row < 0 || row >= vocab) continue;
    Arithmetic<T>* const to = gradient + row * hidden;
    const T* const from = dy + t * hidden;
    for (int64_t i = 0; i < hidden; ++i) to[i] += load(from[i]);
  }
}

template <class T>
void row_max(const T* logits, Arithmetic<T>* maximum, int64_t tokens, int64_t width, int64_t vocab) {
  using R = Arithmetic<T>;
  for (int64_t t = 0; t < tokens; ++t) {
    maximum[t] = vocab > 0 ? max_of(logits + t * width, vocab) : std::numeric_limits<R>::lowest();
  }
}

template <class T>
void exp_sum(const T* logits, const int64_t* targets, const Arithmetic<T>* maximum, Arithmetic<T>* sum,
             Arithmetic<T>* target_logit, int64_t tokens, int64_t width, int64_t vocab, int64_t first) {
  using R = Arithmetic<T>;
  for (int64_t t = 0; t < tokens; ++t) {
    const T* const row = logits + t * width;
    const R top = maximum[t];
    sum[t] = sum_of<R>(vocab, [&](int64_t i) { return exp_of(load(row[i]) - top); });
    const int64_t target = targets[t] - first;
    target_logit[t] = targets[t] >= 0 && target >= 0 && target < vocab ? R(load(row[target])) : R(0);
  }
}

template <class R>
double loss_of(const int64_t* targets, const R* sum, const R* target_logit, R* maximum_to_log_sum_exp,
               int64_t tokens) {
  double total = 0;
  for (int64_t t = 0; t < tokens; ++t) {
    maximum_to_log_sum_exp[t] += std::log(sum[t]);
    if (targets[t] >= 0) total += static_cast<double>(maximum_to_log_sum_exp[t] - target_logit[t]);
  }
  return total;
}

template <class T>
void loss_backward(T* logits, const int64_t* targets, const Arithmetic<T>* log_sum_exp, int64_t tokens,
                   int64_t width, int64_t vocab, int64_t first) {
  using R = Arithmetic<T>;
  for (int64_t t = 0; t < tokens; ++t) {
    T* const row = logits + t * width;
    const int64_t counted = targets[t] < 0 ? 0 : vocab;
    const int64_t target = targets[t] - first;
    const R normaliser = log_sum_exp[t];
    const bool here = target >= 0 && target < counted;
    const R target_logit = here ? R(load(row[target])) : R(0);
    for (int64_t i = 0; i < counted; ++i) store(row[i], exp_of(load(row[i]) - normaliser));
    if (here) store(row[target], exp_of(target_logit - normaliser) - R(1));
    std::fill(row + counted, row + width, T{});
  }
}

#define LOCKSTEP_INSTANTIATE(T)                                                                         \
  template void embedding(const T*, const int64_t*, T*, int64_t, int64_t, int64_t, int64_t);            \
  template void embedding_backward(const T*, const int64_t*, Arithmetic<T>*, int64_t, int64_t, int64_t, \
                                   int64_t);                                                            \
  template void row_max(const T*, Arithmetic<T>*, int64_t, int64_t, int64_t);                           \
  template void exp_sum(const T*, const int64_t*, const Arithmetic<T>*, Arithmetic<T>*, Arithmetic<T>*, \
                        int64_t, int64_t, int64_t, int64_t);                                            \
  template void loss_backward(T*, const int64_t*, const Arithmetic<T>*, int64_t, int64_t, int64_t, int64_t);
LOCKSTEP_INSTANTIATE(Bf16)
LOCKSTEP_INSTANTIATE(float)
LOCKSTEP_INSTANTIATE(double)
#undef LOCKSTEP_INSTANTIATE
template double loss_of(const int64_t*, const float*, const float*, float*, int64_t);
template double loss_of(const int64_t*, const double*, const double*, double*, int64_t);

}  // namespace lockstep::nn::kernel
