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

  // Rows first .. first + rows - 1 of this matrix from (or to) another's.
  template <class T>
  void load_rows(int64_t first, const T* from, int64_t from_row, int64_t rows, int64_t columns) {
    for (int64_t i = 0; i < rows; ++i) {
      for (int64_t j = 0; j < columns; ++j) row(first + i)[j] = load(from[i * from_row + j]);
    }
  }
  // Its columns first .. first + from_rows - 1.
  template <class T>
  void load_transposed(int64_t first, const T* from, int64_t from_row, int64_t from_rows, int64_t columns) {
    for (int64_t i = 0; i < from_rows; ++i) {
      for (int64_t j = 0; j < columns; ++j) row(j)[first + i] = load(from[i * from_row + j]);
    }
  }
  template <class T>
  void store_rows(int64_t first, T* to, int64_t to_row, int64_t rows, int64_t columns) {
    for (int64_t i = 0; i < rows; ++i) {
      for (int64_t j = 0; j < columns; ++j) store(to[i * to_row + j], row(first + i)[j]);
    }
  }

 private:
  int64_t stride_;
  std::unique_ptr<R[]> data_;
};

// f(first key, keys, row): keys that lie in neighbouring rows of a gathered buffer, which cover the sequence.
template <class F>
void for_each_key_run(const AttentionShape& s, int64_t in_batch, F f) {
  if (s.cp == 1) return f(int64_t{0}, s.sequence, in_batch * s.sequence);
  const int64_t size = s.sequence / (2 * s.cp), rows_of_rank = s.batch * s.queries();
  for (int64_t chunk = 0; chunk < 2 * s.cp; ++chunk) {
    const bool second = chunk >= s.cp;
    const int64_t rank = second ? 2 * s.cp - 1 - chunk : chunk;
    f(chunk * size, size, rank * rows_of_rank + in_batch * s.queries() + (second ? size : 0));
  }
}

// Queries in rows [begin, end), and the keys that any of them sees: [first_key, end_key), the first rounded
// down so that rows of keys stay aligned and padded.
struct Block {
  int64_t begin, end;
  int64_t first_key, end_key;
  int64_t size() const { return end - begin; }
  int64_t keys() const { return end_key - first_key; }
};

template <class T, class F>
void for_each_block(const AttentionShape& s, const AttentionInput<T>& in, int64_t in_batch, F f) {
  const int64_t chunk = s.cp == 1 ? s.sequence : s.queries() / 2;  // a block lies in one
  const int64_t rows = (in_batch + 1) * s.queries();
  for (int64_t chunk_begin = in_batch * s.queries(); chunk_begin < rows; chunk_begin += chunk) {
    for (int64_t begin = chunk_begin; begin < chunk_begin + chunk; begin += query_block) {
      const int64_t end = std::min(begin + query_block, chunk_begin + chunk);
      f(Block{begin, end, in.first_key[begin] / column_block * column_block, in.own_key[end - 1] + 1});
    }
  }
}

// scores[j] -> exp(scale scores[j] - offset) for begin <= j < end, 0 elsewhere up to padded(keys).
template <class R>
void exp_row(R* scores, int64_t begin, int64_t end, int64_t keys, R scale, R offset) {
  for (int64_t j = begin / column_block * column_block; j < padded(end); ++j) {
    scores[j] = exp_of(scores[j] * scale - offset);
  }
  std::fill(scores, scores + begin, R(0));
  std::fill(scores + end, scores + padded(keys), R(0));
}

}  // namespace

template <class T>
void attention(const AttentionShape& s, const AttentionInput<T>& in, T* out, Arithmetic<T>* log_sum_exp) {
  using R = Arithmetic<T>;
  const int64_t dim = s.head_dim, out_width = s.heads * dim, group = s.heads / s.kv_heads;
  const R scale = R(1) / std::sqrt(R(dim));
  Scratch<R> keys_transposed(dim, s.sequence), values(s.sequence, dim);
  Scratch<R> queries(query_block, dim), scores(query_block, s.sequence), result(query_block, dim);

  const auto block_of_head = [&](int64_t head, const Block& block) {
    queries.load_rows(0, in.q + block.begin * in.q_width + head * dim, in.q_width, block.size(), dim);
    small_product(block.size(), block.keys(), dim, queries.view(), keys_transposed.row(0) + block.first_key,
                  keys_transposed.stride(), scores.data(), scores.stride(), false);
    R sums[query_block];
    for (int64_t i = 0; i < block.size(); ++i) {
      R* const line = scores.row(i);
      const int64_t row = block.begin + i;
      const int64_t begin = in.first_key[row] - block.first_key, end = in.own_key[row] + 1 - block.first_key;
      const R top = scale * max_of(line + begin, end - begin);
      exp_row(line, begin, end, block.keys(), scale, top);
      sums[i] = sum_of<R>(padded(end), [&](int64_t j) { return line[j]; });
      log_sum_exp[row * s.heads + head] = top + std::log(sums[i]);
    }
    small_product(block.size(), dim, block.keys(), scores.view(), values.row(block.first_key),
                  values.stride(), result.data(), result.stride(), false);
    for (int64_t i = 0; i < block.size(); ++i) {
      T* const to = out + (block.begin + i) * out_width + head * dim;
      const R factor = R(1) / sums[i];
      for (int64_t d = 0; d < dim; ++d) store(to[d], result.row(i)[d] * factor);
    }
  };

  for (int64_t in_batch = 0; in_batch < s.batch; ++in_batch) {
    for (int64_t kv = 0; kv < s.kv_heads; ++kv) {
      for_each_key_run(s, in_batch, [&](int64_t first, int64_t count, int64_t row) {
        const T* const k = in.kv + row * in.kv_width + kv * dim;
        keys_transposed.load_transposed(first, k, in.kv_width, count, dim);
        values.load_rows(first, k + s.kv_heads * dim, in.kv_width, count, dim);
      });
      for (int64_t head = kv * group; head < (kv + 1) * group; ++head) {
        for_each_block(s, in, in_batch, [&](const Block& block) { block_of_head(head, block); });
      }
    }
  }
}

template <class T, class G>
void attention_backward(const AttentionShape& s, const AttentionInput<T>& in, const T* out,
                        const Arithmetic<T>* log_sum_exp, const T* out_gradient,
                        const AttentionGradient<T, G>& gradient) {
  using R = Arithmetic<T>;
  const int64_t dim = s.head_dim, out_width = s.heads * dim, group = s.heads / s.kv_heads;
  const R scale = R(1) / std::sqrt(R(dim));
  Scratch<R> keys(s.sequence, dim), keys_transposed(dim, s.sequence), values_transposed(dim, s.sequence);
  Scratch<R> queries(query_block, dim), out_gradients(query_block, dim), query_gradients(query_block, dim);
  Scratch<R> probabilities(query_block, s.sequence), score_gradients(query_block, s.sequence);

  const auto block_of_head = [&](int64_t head, const Block& block, Scratch<R>& key_gradients,
                                 Scratch<R>& value_gradients) {
    const int64_t rows = block.size(), visible = block.keys();
    const int64_t out_offset = block.begin * out_width + head * dim;
    queries.load_rows(0, in.q + block.begin * in.q_width + head * dim, in.q_width, rows, dim);
    out_gradients.load_rows(0, out_gradient + out_offset, out_width, rows, dim);
    small_product(rows, visible, dim, queries.view(), keys_transposed.row(0) + block.first_key,
                  keys_transposed.stride(), probabilities.data(), probabilities.stride(), false);
    small_product(rows, visible, dim, out_gradients.view(), values_transposed.row(0) + block.first_key,
                  values_transposed.stride(), score_gradients.data(), score_gradients.stride(), false);
    for (int64_t i = 0; i < rows; ++i) {
      R* const p = probabilities.row(i);
      R* const ds = score_gradients.row(i);
      const int64_t row = block.begin + i;
      exp_row(p, in.first_key[row] - block.first_key, in.own_key[row] + 1 - block.first_key, visible, scale,
              log_sum_exp[row * s.heads + head]);
      const T* const o = out + out_offset + i * out_width;
      const R* const d_out = out_gradients.row(i);
      const R dot = sum_of<R>(dim, [&](int64_t d) { return d_out[d] * load(o[d]); });
      for (int64_t j = 0; j < padded(visible); ++j) ds[j] = p[j] * (ds[j] - dot) * scale;
    }
    small_product(visible, dim, rows, probabilities.transposed(), out_gradients.data(),
                  out_gradients.stride(), value_gradients.row(block.first_key), value_gradients.stride(),
                  true);
    small_product(visible, dim, rows, score_gradients.transposed(), queries.data(), queries.stride(),
                  key_gradients.row(block.first_key), key_gradients.stride(), true);
    small_product(rows, dim, visible, score_gradients.view(), keys.row(block.first_key), keys.stride(),
                  query_gradients.data(), query_gradients.stride(), false);
    query_gradients.store_rows(0, gradient.q + block.begin * gradient.q_width + head * dim, gradient.q_width,
                               rows, dim);
  };

  for (int64_t in_batch = 0; in_batch < s.batch; ++in_batch) {
    for (int64_t kv = 0; kv < s.kv_heads; ++kv) {
      for_each_key_run(s, in_batch, [&](int64_t first, int64_t count, int64_t row) {
        const T* const k = in.kv + row * in.kv_width + kv * dim;
        keys.load_rows(first, k, in.kv_width, count, dim);
        keys_transposed.load_transposed(first, k, in.kv_width, count, dim);
        values_transposed.load_transposed(first, k + s.kv_heads * dim, in.kv_width, count, dim);
      });
      Scratch<R> key_gradients(s.sequence, dim), value_gradients(s.sequence, dim);
      for (int64_t head = kv * group; head < (kv + 1) * group; ++head) {
        for_each_block(s, in, in_batch, [&](const Block& block) {
          block_of_head(head, block, key_gradients, value_gradients);
        });
      }
      for_each_key_run(s, in_batch, [&](int64_t first, int64_t count, int64_t row) {
        G* const k = gradient.kv + row * gradient.kv_width + kv * dim;
        key_gradients.store_rows(first, k, gradient.kv_width, count, dim);
        value_gradients.store_rows(first, k + s.kv_heads * dim, gradient.kv_width, count, dim);
      });
    }
  }
}

#define LOCKSTEP_INSTANTIATE(T) \
  template void attention(const AttentionShape&, const AttentionInput<T>&, T*, Arithmetic<T>*);
#define LOCKSTEP_INSTANTIATE_BACKWARD(T, G)                                                   \
  template void attention_backward(const AttentionShape&, const AttentionInput<T>&, const T*, \
                                   const Arithmetic<T>*, const T*, const AttentionGradient<T, G>&);
LOCKSTEP_INSTANTIATE(Bf16)
LOCKSTEP_INSTANTIATE(float)
LOCKSTEP_INSTANTIATE(double)
LOCKSTEP_INSTANTIATE_BACKWARD(Bf16, Bf16)
LOCKSTEP_INSTANTIATE_BACKWARD(Bf16, float)
LOCKSTEP_INSTANTIATE_BACKWARD(float, float)
LOCKSTEP_INSTANTIATE_BACKWARD(double, double)
#undef LOCKSTEP_INSTANTIATE_BACKWARD
#undef LOCKSTEP_INSTANTIATE

}  // namespace lockstep::nn::kernel
