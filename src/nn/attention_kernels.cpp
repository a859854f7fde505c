#include "nn/attention_kernels.hpp"

#include <algorithm>
#include <memory>

#include "nn/small_product.hpp"

namespace lockstep::nn::kernel {

namespace {

constexpr int64_t query_block = 48;  // a multiple of small_product's tile

// A padded matrix in the compute type, zero at first.
template <class R>
class Scratch {
 public:
  Scratch(int64_t rows, int64_t columns)
      : stride_(padded(columns)), data_(std::make_unique<R[]>(static_cast<size_t>(rows * stride_))) {}
  R* row(int64_t i) { return data_.get() + i * stride_; }
  R* data() { return data_.get(); }
  int64_t stride() const { return stride_; }
  Strided<R> view() { return {data_.get(), stride_, 1}; }
  Strided<R> transposed() { return {data_.get(), 1, stride_}; }

  template <class T>
  void load_rows(const T* from, int64_t from_row, int64_t rows, int64_t columns) {
    for (int64_t i = 0; i < rows; ++i) {
      for (int64_t j = 0; j < columns; ++j) row(i)[j] = load(from[i * from_row + j]);
    }
  }
  template <class T>
  void load_transposed(const T* from, int64_t from_row, int64_t from_rows, int64_t columns) {
    for (int64_t i = 0; i < from_rows; ++i) {
      for (int64_t j = 0; j < columns; ++j) row(j)[i] = load(from[i * from_row + j]);
    }
  }
  template <class T>
  void store_rows(T* to, int64_t to_row, int64_t rows, int64_t columns) {
    for (int64_t i = 0; i < rows; ++i) {
      for (int64_t j = 0; j < columns; ++j) store(to[i * to_row + j], row(i)[j]);
    }
  }

 private:
  int64_t stride_;
  std::unique_ptr<R[]> data_;
};

// Queries [begin, end) of a sequence; the last of them sees keys [0, end).
struct Block {
  int64_t begin;
  int64_t end;
  int64_t size() const { return end - begin; }
};

template <class F>
void for_each_block(int64_t sequence, F f) {
  for (int64_t begin = 0; begin < sequence; begin += query_block) {
    f(Block{begin, std::min(begin + query_block, sequence)});
  }
}

// scores[j] -> exp(scale scores[j] - offset) for j < keys, 0 up to padded(end).
template <class R>
void exp_row(R* scores, int64_t keys, int64_t end, R scale, R offset) {
  for (int64_t j = 0; j < padded(keys); ++j) scores[j] = exp_of(scores[j] * scale - offset);
  std::fill(scores + keys, scores + padded(end), R(0));
}

}  // namespace

template <class T>
void attention(const AttentionShape& s, const T* qkv, T* out, Arithmetic<T>* log_sum_exp) {
  using R = Arithmetic<T>;
  const int64_t width = s.qkv_width(), out_width = s.heads * s.head_dim, group = s.heads / s.kv_heads;
  const R scale = R(1) / std::sqrt(R(s.head_dim));
  Scratch<R> keys_transposed(s.head_dim, s.sequence), values(s.sequence, s.head_dim);
  Scratch<R> queries(query_block, s.head_dim), scores(query_block, s.sequence);
  Scratch<R> result(query_block, s.head_dim);

  const auto block_of_head = [&](int64_t first_row, int64_t head, const Block& block) {
    const int64_t row = first_row + block.begin;
    queries.load_rows(qkv + row * width + head * s.head_dim, width, block.size(), s.head_dim);
    small_product(block.size(), block.end, s.head_dim, queries.view(), keys_transposed.data(),
                  keys_transposed.stride(), scores.data(), scores.stride(), false);
    R sums[query_block];
    for (int64_t i = 0; i < block.size(); ++i) {
      R* const line = scores.row(i);
      const int64_t visible = block.begin + i + 1;
      const R top = scale * max_of(line, visible);
      exp_row(line, visible, block.end, scale, top);
      sums[i] = sum_of<R>(padded(visible), [&](int64_t j) { return line[j]; });
      log_sum_exp[(row + i) * s.heads + head] = top + std::log(sums[i]);
    }
    small_product(block.size(), s.head_dim, block.end, scores.view(), values.data(), values.stride(),
                  result.data(), result.stride(), false);
    for (int64_t i = 0; i < block.size(); ++i) {
      T* const to = out + (row + i) * out_width + head * s.head_dim;
      const R factor = R(1) / sums[i];
      for (int64_t d = 0; d < s.head_dim; ++d) store(to[d], result.row(i)[d] * factor);
    }
  };

  for (int64_t first_row = 0; first_row < s.batch * s.sequence; first_row += s.sequence) {
    for (int64_t kv = 0; kv < s.kv_heads; ++kv) {
      const T* const k = qkv + first_row * width + (s.heads + kv) * s.head_dim;
      keys_transposed.load_transposed(k, width, s.sequence, s.head_dim);
      values.load_rows(k + s.kv_heads * s.head_dim, width, s.sequence, s.head_dim);
      for (int64_t head = kv * group; head < (kv + 1) * group; ++head) {
        for_each_block(s.sequence, [&](const Block& block) { block_of_head(first_row, head, block); });
      }
    }
  }
}

template <class T>
void attention_backward(const AttentionShape& s, const T* qkv, const T* out, const Arithmetic<T>* log_sum_exp,
                        const T* out_gradient, T* qkv_gradient) {
  using R = Arithmetic<T>;
  const int64_t width = s.qkv_width(), out_width = s.heads * s.head_dim, group = s.heads / s.kv_heads;
  const int64_t dim = s.head_dim;
  const R scale = R(1) / std::sqrt(R(dim));
  Scratch<R> keys(s.sequence, dim), keys_transposed(dim, s.sequence), values_transposed(dim, s.sequence);
  Scratch<R> queries(query_block, dim), out_gradients(query_block, dim), query_gradients(query_block, dim);
  Scratch<R> probabilities(query_block, s.sequence), score_gradients(query_block, s.sequence);

  const auto block_of_head = [&](int64_t first_row, int64_t head, const Block& block,
                                 Scratch<R>& key_gradients, Scratch<R>& value_gradients) {
    const int64_t row = first_row + block.begin, rows = block.size();
    const int64_t out_offset = row * out_width + head * dim;
    queries.load_rows(qkv + row * width + head * dim, width, rows, dim);
    out_gradients.load_rows(out_gradient + out_offset, out_width, rows, dim);
    small_product(rows, block.end, dim, queries.view(), keys_transposed.data(), keys_transposed.stride(),
                  probabilities.data(), probabilities.stride(), false);
    small_product(rows, block.end, dim, out_gradients.view(), values_transposed.data(),
                  values_transposed.stride(), score_gradients.data(), score_gradients.stride(), false);
    for (int64_t i = 0; i < rows; ++i) {
      R* const p = probabilities.row(i);
      R* const ds = score_gradients.row(i);
      exp_row(p, block.begin + i + 1, block.end, scale, log_sum_exp[(row + i) * s.heads + head]);
      const T* const o = out + out_offset + i * out_width;
      const R* const d_out = out_gradients.row(i);
      const R dot = sum_of<R>(dim, [&](int64_t d) { return d_out[d] * load(o[d]); });
      for (int64_t j = 0; j < padded(block.end); ++j) ds[j] = p[j] * (ds[j] - dot) * scale;
    }
    small_product(block.end, dim, rows, probabilities.transposed(), out_gradients.data(),
                  out_gradients.stride(), value_gradients.data(), value_gradients.stride(), true);
    small_product(block.end, dim, rows, score_gradients.transposed(), queries.data(), queries.stride(),
                  key_gradients.data(), key_gradients.stride(), true);
    small_product(rows, dim, block.end, score_gradients.view(), keys.data(), keys.stride(),
                  query_gradients.data(), query_gradients.stride(), false);
    query_gradients.store_rows(qkv_gradient + row * width + head * dim, width, rows, dim);
  };

  for (int64_t first_row = 0; first_row < s.batch * s.sequence; first_row += s.sequence) {
    for (int64_t kv = 0; kv < s.kv_heads; ++kv) {
      const int64_t k = first_row * width + (s.heads + kv) * dim, v = k + s.kv_heads * dim;
      keys.load_rows(qkv + k, width, s.sequence, dim);
      keys_transposed.load_transposed(qkv + k, width, s.sequence, dim);
      values_transposed.load_transposed(qkv + v, width, s.sequence, dim);
      Scratch<R> key_gradients(s.sequence, dim), value_gradients(s.sequence, dim);
      for (int64_t head = kv * group; head < (kv + 1) * group; ++head) {
        for_each_block(s.sequence, [&](const Block& block) {
          block_of_head(first_row, head, block, key_gradients, value_gradients);
        });
      }
      key_gradients.store_rows(qkv_gradient + k, width, s.sequence, dim);
      value_gradients.store_rows(qkv_gradient + v, width, s.sequence, dim);
    }
  }
}

#define LOCKSTEP_INSTANTIATE(T)                                                                     \
  template void attention(const AttentionShape&, const T*, T*, Arithmetic<T>*);                     \
  template void attention_backward(const AttentionShape&, const T*, const T*, const Arithmetic<T>*, \
                                   const T*, T*);
LOCKSTEP_INSTANTIATE(Bf16)
LOCKSTEP_INSTANTIATE(float)
LOCKSTEP_INSTANTIATE(double)
#undef LOCKSTEP_INSTANTIATE

}  // namespace lockstep::nn::kernel
