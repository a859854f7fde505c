#include "model/layer_program.hpp"

#include <algorithm>

namespace lockstep::model {

namespace {

// Appends ops, knowing sizes: `elements` are of the compute dtype.
class Builder {
 public:
  explicit Builder(const ShardShape& shape) : s_(shape) {}

  void memory(const char* name, int64_t elements, int64_t extra_bytes = 0, Work work = Work::usual) {
    ops_.push_back({name, OpKind::memory, Axis::none, Stream::compute,
                    elements * s_.element_bytes + extra_bytes, 0, 0, 0, 0, work});
  }
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
  void tp_collective(const char* name, OpKind kind, int64_t bytes) {
    if (s_.tp > 1) ops_.push_back({name, kind, Axis::tp, Stream::tp, bytes, 0, 0, 0, 0});
  }
  void cp_collective(const char* name, OpKind kind, int64_t bytes) {
    ops_.push_back({name, kind, Axis::cp, Stream::cp, bytes, 0, 0, 0, 0});
  }

  // Enters a column-parallel product: with sequence parallel the sharded input is gathered.
  void gather() {
    if (s_.sequence_parallel) tp_collective("tp_all_gather", OpKind::all_gather, full());
  }
  // Leaves a row-parallel product: partial sums are reduced, to shards with sequence parallel.
  void reduce() {
    if (s_.sequence_parallel) {
      tp_collective("tp_reduce_scatter", OpKind::reduce_scatter, full());
    } else {
      tp_collective("tp_all_reduce", OpKind::all_reduce, full());
    }
  }
  void append(const std::vector<Op>& more) { ops_.insert(ops_.end(), more.begin(), more.end()); }

  std::vector<Op> take() { return std::move(ops_); }

 private:
  static Op product(const char* name, int64_t m, int64_t n, int64_t k, int64_t bytes) {
    const double flops = 2.0 * static_cast<double>(m) * static_cast<double>(n) * static_cast<double>(k);
    return {name, OpKind::gemm, Axis::none, Stream::compute, bytes, flops, m, n, k};
  }
  int64_t full() const { return s_.tokens * s_.hidden * s_.element_bytes; }

  const ShardShape& s_;
  std::vector<Op> ops_;
};

// Sizes in elements that several ops share.
int64_t norm_elements(const ShardShape& s) { return 2 * s.tokens_sharded * s.hidden + s.hidden; }
// `residual`: a gradient is added that goes around the norm. The weight's gradient is added to.
void norm_backward(Builder& b, const ShardShape& s, const char* name, bool residual) {
  b.rows(name, (residual ? 4 : 3) * s.tokens_sharded * s.hidden + s.hidden, 2 * s.hidden * s.gradient_bytes);
}
// Elements of the embedding's rows that a rank looks up: a token's row is on one rank of tp.
int64_t embedding_rows(const ShardShape& s) { return s.tokens * s.hidden / s.tp; }
int64_t rope_elements(const ShardShape& s) { return 2 * s.tokens * (s.heads + s.kv_heads) * s.head_dim; }
int64_t head_output(const ShardShape& s) { return s.heads * s.head_dim; }
int64_t attention_statistics(const ShardShape& s) { return s.tokens * s.heads * s.statistic_bytes; }

// Context parallel: attention needs the keys and values of the whole sequence.
void gather_keys(Builder& b, const ShardShape& s) {
  if (s.cp == 1) return;
  b.memory("kv_pack", 2 * s.tokens * s.kv_width());
  b.cp_collective("cp_all_gather", OpKind::all_gather, s.tokens_all() * s.kv_width() * s.element_bytes);
}
// The gradients of all keys and values are summed over the ranks in fp32; each gets its own tokens'.
void scatter_key_gradients(Builder& b, const ShardShape& s) {
  if (s.cp == 1) return;
  b.cp_collective("cp_reduce_scatter", OpKind::reduce_scatter,
                  s.tokens_all() * s.kv_width() * s.gradient_bytes);
  b.memory("kv_unpack", s.tokens * s.kv_width(), s.tokens * s.kv_width() * s.gradient_bytes);
}

int64_t all_keys(const ShardShape& s) { return s.tokens_all() * s.kv_width(); }
// Reads q, k, v; writes the output and the statistics.
void attention_forward(Builder& b, const ShardShape& s) {
  b.attention("attention", 2, 2 * s.tokens * head_output(s) + all_keys(s), attention_statistics(s));
}
// Reads q, k, v, the output, its gradient and the statistics; writes the gradients of q, k, v.
void attention_backward(Builder& b, const ShardShape& s) {
  const int64_t key_gradient_bytes = s.cp == 1 ? s.element_bytes : s.gradient_bytes;
  b.attention("attention_backward", 5, 4 * s.tokens * head_output(s) + all_keys(s),
              all_keys(s) * key_gradient_bytes + attention_statistics(s));
}
void attention_norm(Builder& b, const ShardShape& s) { b.rows("attention_norm", norm_elements(s)); }
void ffn_norm(Builder& b, const ShardShape& s) { b.rows("ffn_norm", norm_elements(s)); }
void swiglu(Builder& b, const ShardShape& s) { b.exponentials("swiglu", 3 * s.tokens * s.ffn); }

// Everything before the down product.
void forward_to_down(Builder& b, const ShardShape& s) {
  attention_norm(b, s);
  b.gather();
  b.gemm("qkv_gemm", s.tokens, s.qkv_width(), s.hidden);
  b.rows("rope", rope_elements(s));
  gather_keys(b, s);
  attention_forward(b, s);
  b.gemm("attention_out_gemm", s.tokens, s.hidden, head_output(s));
  b.reduce();
  b.memory("attention_residual", 3 * s.tokens_sharded * s.hidden);
  ffn_norm(b, s);
  b.gather();
  b.gemm("gate_up_gemm", s.tokens, 2 * s.ffn, s.hidden);
  swiglu(b, s);
}

// The input of a column-parallel product is kept as a shard and gathered again for the weight's gradient, or
// kept gathered.
void gather_again(Builder& b, const ShardShape& s) {
  if (!s.keep_gathered) b.gather();
}
int64_t kept_product_input(const ShardShape& s) {
  return (s.keep_gathered ? s.tokens : s.tokens_sharded) * s.hidden;
}

}  // namespace

Recompute recompute_of(const config::ParallelConfig& parallel) {
  const auto has = [&](const char* family) {
    return std::find(parallel.recompute.begin(), parallel.recompute.end(), family) !=
           parallel.recompute.end();
  };
  return {has("norm"), has("swiglu"), has("attention"), has("full"), parallel.recompute_every};
}

std::vector<Op> LayerProgram::layer_forward() const {
  const ShardShape& s = shape;
  Builder b(s);
  forward_to_down(b, s);
  b.gemm("down_gemm", s.tokens, s.hidden, s.ffn);
  b.reduce();
  b.memory("ffn_residual", 3 * s.tokens_sharded * s.hidden);
  return b.take();
}

std::vector<Op> LayerProgram::layer_recompute() const {
  Builder b(shape);
  forward_to_down(b, shape);
  return b.take();
}

std::vector<Op> LayerProgram::layer_backward_input(const Recompute& r) const {
  const ShardShape& s = shape;
  Builder b(s);
  if (r.full) forward_to_down(b, s);
  b.gather();  // gradient of the layer's output
  b.gemm("down_gemm_dgrad", s.tokens, s.ffn, s.hidden);
  if (r.swiglu && !r.full) swiglu(b, s);
  b.exponentials("swiglu_backward", 5 * s.tokens * s.ffn);
  b.gemm("gate_up_gemm_dgrad", s.tokens, s.hidden, 2 * s.ffn);
  b.reduce();
  norm_backward(b, s, "ffn_norm_backward", true);
  b.gather();  // gradient of the attention block's output
  b.gemm("attention_out_gemm_dgrad", s.tokens, head_output(s), s.hidden);
  if (!r.full) gather_keys(b, s);  // else those of the recomputed forward are still there
  if (r.attention && !r.full) attention_forward(b, s);
  attention_backward(b, s);
  scatter_key_gradients(b, s);
  b.rows("rope_backward", rope_elements(s));
  b.gemm("qkv_gemm_dgrad", s.tokens, s.hidden, s.qkv_width());
  b.reduce();
  norm_backward(b, s, "attention_norm_backward", true);
  return b.take();
}

std::vector<Op> LayerProgram::layer_backward_weight(const Recompute& r) const {
  const ShardShape& s = shape;
  Builder b(s);
  b.weight_gradient("down_gemm_wgrad", s.hidden, s.ffn, s.tokens);
  if (r.norm && !r.full) ffn_norm(b, s);
  gather_again(b, s);
  b.weight_gradient("gate_up_gemm_wgrad", 2 * s.ffn, s.hidden, s.tokens);
  b.weight_gradient("attention_out_gemm_wgrad", s.hidden, head_output(s), s.tokens);
  if (r.norm && !r.full) attention_norm(b, s);
  gather_again(b, s);
  b.weight_gradient("qkv_gemm_wgrad", s.qkv_width(), s.hidden, s.tokens);
  return b.take();
}

std::vector<Op> LayerProgram::embedding_forward() const {
  Builder b(shape);
  b.memory("embedding", embedding_rows(shape) + shape.tokens * shape.hidden, shape.tokens * int64_t{8});
  b.reduce();
  return b.take();
}

std::vector<Op> LayerProgram::embedding_backward() const {
  Builder b(shape);
  b.gather();
  b.memory("embedding_wgrad", shape.tokens * shape.hidden,
           shape.tokens * int64_t{8} + 2 * embedding_rows(shape) * shape.gradient_bytes);
  return b.take();
}

std::vector<Op> LayerProgram::head_forward() const {
  const ShardShape& s = shape;
  Builder b(s);
  b.rows("final_norm", norm_elements(s));
  b.gather();
  b.gemm("head_gemm", s.tokens, s.vocab, s.hidden);
  // The vocabulary is cut over tp: the softmax needs the row maximum, then the sum and the target's logit.
  b.memory("loss_max", s.tokens * s.vocab, s.tokens * s.statistic_bytes);
  b.tp_collective("tp_all_reduce", OpKind::all_reduce, s.tokens * s.statistic_bytes);
  b.exponentials("loss_sum", s.tokens * s.vocab, s.tokens * (int64_t{8} + 3 * s.statistic_bytes));
  b.tp_collective("tp_all_reduce", OpKind::all_reduce, 2 * s.tokens * s.statistic_bytes);
  return b.take();
}

std::vector<Op> LayerProgram::head_backward_input() const {
  const ShardShape& s = shape;
  Builder b(s);
  b.exponentials("loss_backward", 2 * s.tokens * s.vocab, s.tokens * (int64_t{8} + s.statistic_bytes));
  b.gemm("head_gemm_dgrad", s.tokens, s.hidden, s.vocab);
  b.reduce();
  norm_backward(b, s, "final_norm_backward", false);
  return b.take();
}

std::vector<Op> LayerProgram::head_backward_weight() const {
  const ShardShape& s = shape;
  Builder b(s);
  gather_again(b, s);
  b.weight_gradient("head_gemm_wgrad", s.vocab, s.hidden, s.tokens);
  return b.take();
}

std::vector<Op> LayerProgram::chunk_forward(const ChunkContent& content) const {
  Builder b(shape);
  if (content.embedding) b.append(embedding_forward());
  for (int64_t i = 0; i < content.layers; ++i) b.append(layer_forward());
  if (content.head) b.append(head_forward());
  return b.take();
}

std::vector<Op> LayerProgram::chunk_backward(const ChunkContent& content) const {
  Builder b(shape);
  if (content.head) b.append(head_backward_input());
  if (content.head) b.append(head_backward_weight());
  for (int64_t i = content.layers; i-- > 0;) {
    b.append(layer_backward_input(recompute.at(content.first_layer + i)));
    b.append(layer_backward_weight(recompute.at(content.first_layer + i)));
  }
  if (content.embedding) b.append(embedding_backward());
  return b.take();
}

std::vector<Op> LayerProgram::chunk_backward_input(const ChunkContent& content) const {
  Builder b(shape);
  if (content.head) b.append(head_backward_input());
  for (int64_t i = content.layers; i-- > 0;) {
    b.append(layer_backward_input(recompute.at(content.first_layer + i)));
  }
  return b.take();
}

std::vector<Op> LayerProgram::chunk_backward_weight(const ChunkContent& content) const {
  Builder b(shape);
  if (content.head) b.append(head_backward_weight());
  for (int64_t i = content.layers; i-- > 0;) {
    b.append(layer_backward_weight(recompute.at(content.first_layer + i)));
  }
  if (content.embedding) b.append(embedding_backward());
  return b.take();
}

int64_t layer_activation_bytes(const ShardShape& s, const Recompute& r) {
  const int64_t sharded = s.tokens_sharded * s.hidden;
  const Keeps keeps(r);
  int64_t elements = sharded;                                  // the input
  if (keeps.norm) elements += 2 * kept_product_input(s);       // outputs of both norms
  if (keeps.attention) elements += s.tokens * head_output(s);  //
  if (keeps.swiglu) elements += s.tokens * s.ffn;              // input of the down product
  if (keeps.rest) elements += sharded + s.tokens * (s.qkv_width() + 2 * s.ffn);
  return elements * s.element_bytes + (keeps.attention ? attention_statistics(s) : 0);
}

int64_t layer_stash_bytes(const ShardShape& s, const Recompute& r) {
  const bool norm_inputs = r.norm && !r.full;
  int64_t elements = 2 * (norm_inputs ? s.tokens_sharded * s.hidden : kept_product_input(s));
  elements += s.tokens * (head_output(s) + s.ffn);  // the other two products' inputs
  elements += s.tokens * (s.qkv_width() + 2 * s.ffn + 2 * s.hidden);
  return elements * s.element_bytes;
}

int64_t chunk_activation_bytes(const ShardShape& s, const Recompute& recompute, const ChunkContent& content) {
  int64_t bytes = 0;
  for (int64_t i = 0; i < content.layers; ++i) {
    bytes += layer_activation_bytes(s, recompute.at(content.first_layer + i));
  }
  if (content.embedding) bytes += s.tokens * 8;
  if (content.head) {
    const int64_t elements = s.tokens_sharded * s.hidden + kept_product_input(s) + s.tokens * s.vocab;
    bytes += elements * s.element_bytes + s.tokens * (s.statistic_bytes + 8);
  }
  return bytes;
}

int64_t chunk_stash_bytes(const ShardShape& s, const Recompute& recompute, const ChunkContent& content) {
  int64_t bytes = 0;
  for (int64_t i = 0; i < content.layers; ++i) {
    bytes += layer_stash_bytes(s, recompute.at(content.first_layer + i));
  }
  if (content.embedding) bytes += s.tokens * 8 + s.tokens_sharded * s.hidden * s.element_bytes;
  if (content.head) bytes += (kept_product_input(s) + s.tokens * s.vocab) * s.element_bytes;
  return bytes;
}

int64_t boundary_bytes(const ShardShape& s) { return s.tokens_sharded * s.hidden * s.element_bytes; }

}  // namespace lockstep::model
