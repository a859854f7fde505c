#include "model/gpt_layer.hpp"

#include "model/attention_ops.hpp"

namespace lockstep::model {

namespace {

int64_t shard(const ShardShape& s) { return s.tokens_sharded * s.hidden; }

void norm(OpBuilder& b, const ShardShape& s, const char* name) {
  b.rows(name, 2 * shard(s) + 2 * s.hidden);  // weight and bias
}
// A gradient is added that goes around the norm; the gradients of weight and bias are added to.
void norm_backward(OpBuilder& b, const ShardShape& s, const char* name) {
  b.rows(name, 4 * shard(s) + s.hidden, 4 * s.hidden * s.gradient_bytes);
}
// Adds bias and residual to the block's output, dropped out: a byte of mask each.
void add_residual(OpBuilder& b, const ShardShape& s, const char* name) {
  b.memory(name, 3 * shard(s), s.dropout ? shard(s) : 0);
}
void dropout(OpBuilder& b, const ShardShape& s, const char* name) {
  if (s.dropout) b.memory(name, 2 * shard(s), shard(s));
}
void gelu(OpBuilder& b, const ShardShape& s) { b.exponentials("gelu", 2 * s.tokens * s.ffn); }

}  // namespace

void gpt_forward_to_down(OpBuilder& b, const ShardShape& s) {
  norm(b, s, "attention_norm");
  b.gather();
  b.gemm("qkv_gemm", s.tokens, s.qkv_width(), s.hidden);
  b.memory("qkv_bias", 2 * s.tokens * s.qkv_width());
  gather_keys(b, s);
  attention_forward(b, s);
  b.gemm("attention_out_gemm", s.tokens, s.hidden, head_output(s));
  b.reduce();
  add_residual(b, s, "attention_residual");
  norm(b, s, "ffn_norm");
  b.gather();
  b.gemm("up_gemm", s.tokens, s.ffn, s.hidden);
  gelu(b, s);
}

void gpt_forward_from_down(OpBuilder& b, const ShardShape& s) {
  b.gemm("down_gemm", s.tokens, s.hidden, s.ffn);
  b.reduce();
  add_residual(b, s, "ffn_residual");
}

void gpt_backward_input(OpBuilder& b, const ShardShape& s, const Recompute& r) {
  b.gather();  // gradient of the layer's output
  dropout(b, s, "ffn_dropout_backward");
  b.memory("down_bias_gradient", shard(s));
  b.gemm("down_gemm_dgrad", s.tokens, s.ffn, s.hidden);
  if (r.activation && !r.full) gelu(b, s);
  b.exponentials("gelu_backward", 3 * s.tokens * s.ffn);
  b.memory("up_bias_gradient", s.tokens * s.ffn);
  b.gemm("up_gemm_dgrad", s.tokens, s.hidden, s.ffn);
  b.reduce();
  norm_backward(b, s, "ffn_norm_backward");
  b.gather();  // gradient of the attention block's output
  dropout(b, s, "attention_dropout_backward");
  b.memory("attention_out_bias_gradient", shard(s));
  b.gemm("attention_out_gemm_dgrad", s.tokens, head_output(s), s.hidden);
  if (!r.full) gather_keys(b, s);
  if (r.attention && !r.full) attention_forward(b, s);
  attention_backward(b, s);
  scatter_key_gradients(b, s);
  b.memory("qkv_bias_gradient", s.tokens * s.qkv_width());
  b.gemm("qkv_gemm_dgrad", s.tokens, s.hidden, s.qkv_width());
  b.reduce();
  norm_backward(b, s, "attention_norm_backward");
}

void gpt_backward_weight(OpBuilder& b, const ShardShape& s, const Recompute& r) {
  b.weight_gradient("down_gemm_wgrad", s.hidden, s.ffn, s.tokens);
  if (r.norm && !r.full) norm(b, s, "ffn_norm");
  gather_again(b, s);
  b.weight_gradient("up_gemm_wgrad", s.ffn, s.hidden, s.tokens);
  b.weight_gradient("attention_out_gemm_wgrad", s.hidden, head_output(s), s.tokens);
  if (r.norm && !r.full) norm(b, s, "attention_norm");
  gather_again(b, s);
  b.weight_gradient("qkv_gemm_wgrad", s.qkv_width(), s.hidden, s.tokens);
}

void gpt_positions(OpBuilder& b, const ShardShape& s) {
  b.memory("positions", 3 * shard(s));
  dropout(b, s, "embedding_dropout");
}

void gpt_positions_backward(OpBuilder& b, const ShardShape& s) {
  dropout(b, s, "embedding_dropout_backward");
  const int64_t positions = s.tokens_sharded * s.sequence / s.tokens_all();  // of one sequence
  b.memory("position_gradient", shard(s), 2 * positions * s.hidden * s.gradient_bytes);
}

}  // namespace lockstep::model
