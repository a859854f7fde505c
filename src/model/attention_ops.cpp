#include "model/attention_ops.hpp"

namespace lockstep::model {

namespace {

int64_t all_keys(const ShardShape& s) { return s.tokens_all() * s.kv_width(); }
int64_t statistics(const ShardShape& s) { return s.tokens * s.heads * s.statistic_bytes; }

// Reads q, k, v; writes the output and the statistics.
void fused_forward(OpBuilder& b, const ShardShape& s) {
  b.attention("attention", 2, 2 * s.tokens * head_output(s) + all_keys(s), statistics(s));
}
// Reads q, k, v, the output, its gradient and the statistics; writes the gradients of q, k, v.
void fused_backward(OpBuilder& b, const ShardShape& s) {
  const int64_t key_gradient_bytes = s.cp == 1 ? s.element_bytes : s.statistic_bytes;
  b.attention("attention_backward", 5, 4 * s.tokens * head_output(s) + all_keys(s),
              all_keys(s) * key_gradient_bytes + statistics(s));
  b.launches(2);
}

// Batched products over the full square, nothing saved where the mask is; between them one kernel for scale,
// mask and softmax.
int64_t sequences(const ShardShape& s) { return s.tokens_all() / s.sequence; }
int64_t queries(const ShardShape& s) { return s.sequence / s.cp; }
int64_t matrices(const ShardShape& s) { return sequences(s) * s.heads; }

void dropout_of_scores(OpBuilder& b, const ShardShape& s, const char* name) {
  if (s.dropout) b.memory(name, 2 * s.score_elements(), s.score_elements());  // a byte of mask each
}

void scores_forward(OpBuilder& b, const ShardShape& s) {
  b.batched_gemm("scores_gemm", matrices(s), queries(s), s.sequence, s.head_dim);
  b.exponentials("softmax", 2 * s.score_elements());
  dropout_of_scores(b, s, "softmax_dropout");
  b.batched_gemm("values_gemm", matrices(s), queries(s), s.head_dim, s.sequence);
  b.memory("heads_side_by_side", 2 * s.tokens * head_output(s));
  b.launches(3);  // and the views before the products
}

void scores_backward(OpBuilder& b, const ShardShape& s) {
  b.memory("heads_apart", 2 * s.tokens * head_output(s));
  b.launches(2);
  b.batched_gemm("values_gemm_dgrad", matrices(s), queries(s), s.sequence, s.head_dim);
  b.batched_gemm("values_gemm_wgrad", matrices(s), s.sequence, s.head_dim, queries(s));
  dropout_of_scores(b, s, "softmax_dropout_backward");
  b.exponentials("softmax_backward", 3 * s.score_elements());
  b.batched_gemm("queries_gemm_dgrad", matrices(s), queries(s), s.head_dim, s.sequence);
  b.batched_gemm("keys_gemm_dgrad", matrices(s), s.sequence, s.head_dim, queries(s));
  b.memory("qkv_side_by_side", 2 * s.tokens * s.qkv_width());
  b.launches(3);
}

}  // namespace

void gather_keys(OpBuilder& b, const ShardShape& s) {
  if (s.cp == 1) return;
  b.memory("kv_pack", 2 * s.tokens * s.kv_width());
  b.cp_collective("cp_all_gather", OpKind::all_gather, s.tokens_all() * s.kv_width() * s.element_bytes);
}

void scatter_key_gradients(OpBuilder& b, const ShardShape& s) {
  if (s.cp == 1) return;
  b.cp_collective("cp_reduce_scatter", OpKind::reduce_scatter,
                  s.tokens_all() * s.kv_width() * s.statistic_bytes);
  b.memory("kv_unpack", s.tokens * s.kv_width(), s.tokens * s.kv_width() * s.statistic_bytes);
}

void attention_forward(OpBuilder& b, const ShardShape& s) {
  return s.scores ? scores_forward(b, s) : fused_forward(b, s);
}

void attention_backward(OpBuilder& b, const ShardShape& s) {
  return s.scores ? scores_backward(b, s) : fused_backward(b, s);
}

int64_t attention_kept_bytes(const ShardShape& s) {
  if (!s.scores) return statistics(s);
  return s.score_elements() * (s.dropout ? 2 * s.element_bytes + 1 : s.element_bytes);
}

}  // namespace lockstep::model
