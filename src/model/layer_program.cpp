#include "model/layer_program.hpp"

#include <algorithm>

#include "model/attention_ops.hpp"
#include "model/gpt_layer.hpp"
#include "model/op_builder.hpp"

namespace lockstep::model {

namespace {

int64_t norm_elements(const ShardShape& s) { return 2 * s.tokens_sharded * s.hidden + s.hidden; }
// `residual`: a gradient is added that goes around the norm. The weight's gradient is added to.
void norm_backward(OpBuilder& b, const ShardShape& s, const char* name, bool residual) {
  b.rows(name, (residual ? 4 : 3) * s.tokens_sharded * s.hidden + s.hidden, 2 * s.hidden * s.gradient_bytes);
}
// Elements of the embedding's rows that a rank looks up: a token's row is on one rank of tp.
int64_t embedding_rows(const ShardShape& s) { return s.tokens * s.hidden / s.tp; }
int64_t rope_elements(const ShardShape& s) { return 2 * s.tokens * (s.heads + s.kv_heads) * s.head_dim; }
void attention_norm(OpBuilder& b, const ShardShape& s) { b.rows("attention_norm", norm_elements(s)); }
void ffn_norm(OpBuilder& b, const ShardShape& s) { b.rows("ffn_norm", norm_elements(s)); }
void swiglu(OpBuilder& b, const ShardShape& s) { b.exponentials("swiglu", 3 * s.tokens * s.ffn); }

// Everything before the down product.
void forward_to_down(OpBuilder& b, const ShardShape& s) {
  if (s.gpt) return gpt_forward_to_down(b, s);
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
void forward_from_down(OpBuilder& b, const ShardShape& s) {
  if (s.gpt) return gpt_forward_from_down(b, s);
  b.gemm("down_gemm", s.tokens, s.hidden, s.ffn);
  b.reduce();
  b.memory("ffn_residual", 3 * s.tokens_sharded * s.hidden);
}
// Every second product, of q, k, v, out, gate, up and down, and what needs no product but attention.
void second_products_again(OpBuilder& b, const ShardShape& s) {
  attention_norm(b, s);
  b.gather();
  b.gemm("k_gemm", s.tokens, s.kv_heads * s.head_dim, s.hidden);
  b.rows("rope", rope_elements(s));
  b.gemm("attention_out_gemm", s.tokens, s.hidden, head_output(s));
  b.memory("attention_residual", 3 * s.tokens_sharded * s.hidden);  // sums over tp are kept
  ffn_norm(b, s);
  b.gather();
  b.gemm("up_gemm", s.tokens, s.ffn, s.hidden);
  swiglu(b, s);
}
// What full recomputation runs.
void forward_again(OpBuilder& b, const ShardShape& s, const Recompute& r) {
  if (r.second_products) return second_products_again(b, s);
  forward_to_down(b, s);
  if (!s.recompute_early_stop) forward_from_down(b, s);
}

// Memory traffic of the loss, bytes a logit. Not fused it works on an fp32 copy of the logits, one kernel an
// operation: forward copy, maximum, difference, exponential, sum, quotient; backward scaling, subtraction of
// the target and the cast (counted from Megatron-LM's cross-entropy; the backward is an estimate).
struct LossTraffic {
  int64_t maximum = 0, sum = 0, backward = 0;
  int maximum_launches = 1, sum_launches = 1, backward_launches = 1;
};
LossTraffic loss_traffic(const ShardShape& s) {
  const int64_t e = s.element_bytes, f = s.statistic_bytes;
  switch (s.cross_entropy) {
    case config::CrossEntropy::compiled:
      return {e + f, f, e + 2 * f};
    case config::CrossEntropy::unfused:
      return {e + 2 * f, 6 * f, e + 6 * f, 2, 6, 4};
    case config::CrossEntropy::fused:
      break;
  }
  return {e, e, 2 * e};
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
  const bool second = has("second_products");
  return {has("norm"), has("swiglu") || has("gelu"), has("attention"), has("full") || second,
          second,      parallel.recompute_every};
}

std::vector<Op> LayerProgram::layer_forward() const {
  const ShardShape& s = shape;
  OpBuilder b(s);
  forward_to_down(b, s);
  forward_from_down(b, s);
  return b.take();
}

std::vector<Op> LayerProgram::layer_recompute() const {
  OpBuilder b(shape);
  forward_again(b, shape, recompute);
  return b.take();
}

std::vector<Op> LayerProgram::layer_backward_input(const Recompute& r) const {
  const ShardShape& s = shape;
  OpBuilder b(s);
  if (r.full) forward_again(b, s, r);
  if (s.gpt) {
    gpt_backward_input(b, s, r);
    return b.take();
  }
  b.gather();  // gradient of the layer's output
  b.gemm("down_gemm_dgrad", s.tokens, s.ffn, s.hidden);
  if (r.activation && !r.full) swiglu(b, s);
  b.exponentials("swiglu_backward", 5 * s.tokens * s.ffn);
  b.gemm("gate_up_gemm_dgrad", s.tokens, s.hidden, 2 * s.ffn);
  b.reduce();
  norm_backward(b, s, "ffn_norm_backward", true);
  b.gather();  // gradient of the attention block's output
  b.gemm("attention_out_gemm_dgrad", s.tokens, head_output(s), s.hidden);
  // Else those of the recomputed forward are still there.
  if (!r.full || r.second_products) gather_keys(b, s);
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
  OpBuilder b(s);
  if (s.gpt) {
    gpt_backward_weight(b, s, r);
    return b.take();
  }
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
  OpBuilder b(shape);
  b.memory("embedding", embedding_rows(shape) + shape.tokens * shape.hidden, shape.tokens * int64_t{8});
  b.launches(2);
  b.reduce_at_end();
  if (shape.gpt) gpt_positions(b, shape);
  return b.take();
}

std::vector<Op> LayerProgram::embedding_backward() const {
  OpBuilder b(shape);
  if (shape.gpt) gpt_positions_backward(b, shape);
  b.gather_at_end();
  b.memory("embedding_wgrad", shape.tokens * shape.hidden,
           shape.tokens * int64_t{8} + 2 * embedding_rows(shape) * shape.gradient_bytes);
  b.launches(2);
  return b.take();
}

std::vector<Op> LayerProgram::head_forward() const {
  const ShardShape& s = shape;
  OpBuilder b(s);
  b.rows("final_norm", norm_elements(s));
  b.gather_at_end();
  b.gemm("head_gemm", s.tokens, s.vocab, s.hidden);
  // The vocabulary is cut over tp: the softmax needs the row maximum, then the sum and the target's logit.
  const LossTraffic loss = loss_traffic(s);
  const int64_t logits = s.tokens * s.vocab;
  b.memory("loss_max", 0, logits * loss.maximum + s.tokens * s.statistic_bytes);
  b.launches(loss.maximum_launches);
  b.tp_collective("tp_all_reduce", OpKind::all_reduce, s.tokens * s.statistic_bytes);
  b.exponentials("loss_sum", 0, logits * loss.sum + s.tokens * (int64_t{8} + 3 * s.statistic_bytes));
  b.launches(loss.sum_launches);
  b.tp_collective("tp_all_reduce", OpKind::all_reduce, 2 * s.tokens * s.statistic_bytes);
  return b.take();
}

std::vector<Op> LayerProgram::head_backward_input() const {
  const ShardShape& s = shape;
  OpBuilder b(s);
  const LossTraffic loss = loss_traffic(s);
  b.exponentials("loss_backward", 0,
                 s.tokens * s.vocab * loss.backward + s.tokens * (int64_t{8} + s.statistic_bytes));
  b.launches(loss.backward_launches);
  b.gemm("head_gemm_dgrad", s.tokens, s.hidden, s.vocab);
  b.reduce_at_end();
  norm_backward(b, s, "final_norm_backward", false);
  return b.take();
}

std::vector<Op> LayerProgram::head_backward_weight() const {
  const ShardShape& s = shape;
  OpBuilder b(s);
  gather_again(b, s);
  b.weight_gradient("head_gemm_wgrad", s.vocab, s.hidden, s.tokens);
  return b.take();
}

std::vector<Op> LayerProgram::chunk_forward(const ChunkContent& content) const {
  OpBuilder b(shape);
  if (content.embedding) b.append(embedding_forward());
  for (int64_t i = 0; i < content.layers; ++i) b.append(layer_forward());
  if (content.head) b.append(head_forward());
  return b.take();
}

std::vector<Op> LayerProgram::chunk_backward(const ChunkContent& content) const {
  OpBuilder b(shape);
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
  OpBuilder b(shape);
  if (content.head) b.append(head_backward_input());
  for (int64_t i = content.layers; i-- > 0;) {
    b.append(layer_backward_input(recompute.at(content.first_layer + i)));
  }
  return b.take();
}

std::vector<Op> LayerProgram::chunk_backward_weight(const ChunkContent& content) const {
  OpBuilder b(shape);
  if (content.head) b.append(head_backward_weight());
  for (int64_t i = content.layers; i-- > 0;) {
    b.append(layer_backward_weight(recompute.at(content.first_layer + i)));
  }
  if (content.embedding) b.append(embedding_backward());
  return b.take();
}

int64_t layer_activation_bytes(const ShardShape& s, const Recompute& r) {
  const int64_t sharded = s.tokens_sharded * s.hidden;
  const Keeps keeps(r, s.scores);
  int64_t elements = sharded;                             // the input
  if (keeps.norm) elements += 2 * kept_product_input(s);  // outputs of both norms
  if (keeps.attention_output) elements += s.tokens * head_output(s);
  if (keeps.activation) elements += s.tokens * s.ffn;  // input of the down product
  if (keeps.rest) elements += sharded + s.tokens * (s.qkv_width() + s.activation_width());
  int64_t bytes = elements * s.element_bytes;
  if (keeps.attention) bytes += attention_kept_bytes(s);
  if (keeps.rest) bytes += 2 * dropout_mask_bytes(s);
  if (r.second_products) bytes += kept_products_bytes(s);
  return bytes;
}

int64_t kept_products_bytes(const ShardShape& s) {
  return s.tokens * (head_output(s) + s.kv_heads * s.head_dim + s.ffn + s.hidden) * s.element_bytes;
}

int64_t layer_stash_bytes(const ShardShape& s, const Recompute& r) {
  const bool norm_inputs = r.norm && !r.full;
  int64_t elements = 2 * (norm_inputs ? s.tokens_sharded * s.hidden : kept_product_input(s));
  elements += s.tokens * (head_output(s) + s.ffn);  // the other two products' inputs
  elements += s.tokens * (s.qkv_width() + s.activation_width() + 2 * s.hidden);
  return elements * s.element_bytes;
}

int64_t chunk_activation_bytes(const ShardShape& s, const Recompute& recompute, const ChunkContent& content) {
  int64_t bytes = 0;
  for (int64_t i = 0; i < content.layers; ++i) {
    bytes += layer_activation_bytes(s, recompute.at(content.first_layer + i));
  }
  if (content.embedding) bytes += s.tokens * 8 + dropout_mask_bytes(s);
  if (content.head) {
    const int64_t elements = s.tokens_sharded * s.hidden + kept_product_input(s);
    bytes += elements * s.element_bytes + s.tokens * s.vocab * logit_bytes(s);
    bytes += s.tokens * (s.statistic_bytes + 8);
  }
  return bytes;
}

int64_t chunk_stash_bytes(const ShardShape& s, const Recompute& recompute, const ChunkContent& content) {
  int64_t bytes = 0;
  for (int64_t i = 0; i < content.layers; ++i) {
    bytes += layer_stash_bytes(s, recompute.at(content.first_layer + i));
  }
  if (content.embedding) {
    bytes += s.tokens * 8 + s.tokens_sharded * s.hidden * s.element_bytes + dropout_mask_bytes(s);
  }
  if (content.head) bytes += (kept_product_input(s) + s.tokens * s.vocab) * s.element_bytes;
  return bytes;
}

int64_t dropout_mask_bytes(const ShardShape& s) { return s.dropout ? s.tokens_sharded * s.hidden : 0; }

int64_t logit_bytes(const ShardShape& s) {
  return s.cross_entropy == config::CrossEntropy::fused ? s.element_bytes : s.statistic_bytes;
}

int64_t boundary_bytes(const ShardShape& s) { return s.tokens_sharded * s.hidden * s.element_bytes; }

}  // namespace lockstep::model
