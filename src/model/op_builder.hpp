// What lists of ops are put together with.
#pragma once

#include <cmath>
#include <cstdint>
#include <utility>
#include <vector>

#include "model/op.hpp"
#include "model/shape.hpp"

namespace lockstep::model {

// Appends ops, knowing sizes: `elements` are of the compute dtype.
class OpBuilder {
 public:
  explicit OpBuilder(const ShardShape& shape) : s_(shape) {}

  void memory(const char* name, int64_t elements, int64_t extra_bytes = 0, Work work = Work::usual) {
    ops_.push_back({name, OpKind::memory, Axis::none, Stream::compute,
                    traffic(elements * s_.element_bytes + extra_bytes), 0, 0, 0, 0, work});
  }
  // The host queues so many kernels for the latest op.
  void launches(int count) { ops_.back().launches = count; }
  void rows(const char* name, int64_t elements, int64_t extra_bytes = 0) {
    memory(name, elements, extra_bytes, Work::rows);
  }
  void exponentials(const char* name, int64_t elements, int64_t extra_bytes = 0) {
    memory(name, elements, extra_bytes, Work::exponentials);
  }
  // [m, k] x [k, n]: reads both, writes the result.
  void gemm(const char* name, int64_t m, int64_t n, int64_t k) {
    const int64_t bytes = (m * k + k * n + m * n) * s_.element_bytes;
    ops_.push_back(product(name, m, n, k, bytes));
  }
  // So many independent products [m, k] x [k, n].
  void batched_gemm(const char* name, int64_t batch, int64_t m, int64_t n, int64_t k) {
    const int64_t bytes = (m * k + k * n + m * n) * batch * s_.element_bytes;
    ops_.push_back(product(name, m, n, k, bytes));
    ops_.back().batch = batch;
    ops_.back().flops *= static_cast<double>(batch);
  }
  // Weight gradient [rows, cols] = output gradient^T x input, added to what is accumulated.
  void weight_gradient(const char* name, int64_t rows, int64_t cols, int64_t tokens) {
    const int64_t bytes =
        (tokens * rows + tokens * cols) * s_.element_bytes + 2 * rows * cols * s_.gradient_bytes;
    ops_.push_back(product(name, rows, cols, tokens, bytes));
    ops_.back().work = Work::weight_gradient;
  }
  // `products`: matrix products over the [S, S] scores; causal, so half of the square counts.
  void attention(const char* name, int products, int64_t elements, int64_t extra_bytes) {
    const double square = static_cast<double>(s_.tokens) * static_cast<double>(s_.sequence) *
                          static_cast<double>(s_.heads * s_.head_dim);
    ops_.push_back({name, OpKind::attention, Axis::none, Stream::compute,
                    elements * s_.element_bytes + extra_bytes, 2.0 * products * square / 2, 0, 0, 0});
  }
  void tp_collective(const char* name, OpKind kind, int64_t bytes, bool beside_product = false) {
    if (s_.tp == 1) return;
    ops_.push_back({name, kind, Axis::tp, Stream::tp, bytes, 0, 0, 0, 0});
    ops_.back().beside_product = beside_product;
    if (!s_.tensor_parallel_copies) return;
    ops_.push_back({"tp_copy", OpKind::memory, Axis::none, Stream::compute, 2 * bytes, 0, 0, 0, 0});
  }
  void cp_collective(const char* name, OpKind kind, int64_t bytes) {
    ops_.push_back({name, kind, Axis::cp, Stream::cp, bytes, 0, 0, 0, 0});
  }

  // Enters a column-parallel product of a layer: with sequence parallel the sharded input is gathered.
  void gather() { gather(Place::layer); }
  // Leaves a row-parallel product of a layer: partial sums are reduced, to shards with sequence parallel.
  void reduce() { reduce(Place::layer); }
  // The same of embedding and output matrix.
  void gather_at_end() { gather(Place::end); }
  void reduce_at_end() { reduce(Place::end); }
  void append(const std::vector<Op>& more) { ops_.insert(ops_.end(), more.begin(), more.end()); }

  std::vector<Op> take() { return std::move(ops_); }

 private:
  enum class Place : uint8_t { layer, end };
  void gather(Place place) {
    if (!s_.sequence_parallel) return;
    tp_collective("tp_all_gather", OpKind::all_gather, full(), place == Place::layer);
  }
  void reduce(Place place) {
    if (!s_.sequence_parallel) return tp_collective("tp_all_reduce", OpKind::all_reduce, full());
    tp_collective("tp_reduce_scatter", OpKind::reduce_scatter, full(), place == Place::layer);
  }
  // Of a kernel that moves `bytes` where it is fused with its neighbours.
  int64_t traffic(int64_t bytes) const {
    return std::llround(static_cast<double>(bytes) * s_.elementwise_traffic);
  }
  static Op product(const char* name, int64_t m, int64_t n, int64_t k, int64_t bytes) {
    const double flops = 2.0 * static_cast<double>(m) * static_cast<double>(n) * static_cast<double>(k);
    return {name, OpKind::gemm, Axis::none, Stream::compute, bytes, flops, m, n, k};
  }
  int64_t full() const { return s_.tokens * s_.hidden * s_.element_bytes; }

  const ShardShape& s_;
  std::vector<Op> ops_;
};

// Sizes in elements that several ops share.
inline int64_t head_output(const ShardShape& s) { return s.heads * s.head_dim; }
// The input of a column-parallel product is kept as a shard and gathered again for the weight's gradient, or
// kept gathered.
inline void gather_again(OpBuilder& b, const ShardShape& s) {
  if (!s.keep_gathered) b.gather();
}

}  // namespace lockstep::model
