#include "reference.hpp"

#include <cmath>
#include <limits>

namespace lockstep::nn::test {

namespace {

at::Tensor norm(const at::Tensor& x, const at::Tensor& weight) {
  return x / (x.square().mean(-1, true) + norm_eps).sqrt() * weight;
}

// Hugging Face's apply_rotary_pos_emb on [B, heads, S, D].
at::Tensor rotate(const at::Tensor& x) {
  const int64_t sequence = x.size(2), dim = x.size(3);
  const auto f64 = at::TensorOptions(at::kDouble);
  const at::Tensor frequencies =
      1.0 / at::pow(rope_theta, at::arange(0, dim, 2, f64) / static_cast<double>(dim));
  const at::Tensor half_angles = at::outer(at::arange(0, sequence, f64), frequencies);
  const at::Tensor angles = at::cat({half_angles, half_angles}, -1);
  const auto halves = x.chunk(2, -1);
  return x * angles.cos() + at::cat({-halves[1], halves[0]}, -1) * angles.sin();
}

at::Tensor split_heads(const Case& c, const at::Tensor& x, int64_t heads) {
  return x.view({c.micro_batch, c.sequence, heads, c.head_dim}).transpose(1, 2);
}

at::Tensor causal_attention(const Case& c, const at::Tensor& q_flat, const at::Tensor& k_flat,
                            const at::Tensor& v_flat) {
  const int64_t group = c.heads / c.kv_heads;
  const at::Tensor q = rotate(split_heads(c, q_flat, c.heads));
  const at::Tensor k = rotate(split_heads(c, k_flat, c.kv_heads)).repeat_interleave(group, 1);
  const at::Tensor v = split_heads(c, v_flat, c.kv_heads).repeat_interleave(group, 1);
  const at::Tensor mask =
      at::full({c.sequence, c.sequence}, -std::numeric_limits<double>::infinity(), at::kDouble).triu(1);
  const at::Tensor scores =
      at::matmul(q, k.transpose(2, 3)) / std::sqrt(static_cast<double>(c.head_dim)) + mask;
  const at::Tensor out = at::matmul(scores.softmax(-1), v);
  return out.transpose(1, 2).reshape({c.tokens(), c.hidden()});
}

}  // namespace

at::Tensor reference_layer(const Case& c, const LayerTensors& w, const at::Tensor& x) {
  const int64_t q_rows = c.heads * c.head_dim, kv_rows = c.kv_heads * c.head_dim;
  const auto qkv = w.qkv.split_with_sizes({q_rows, kv_rows, kv_rows});
  const at::Tensor normed = norm(x, w.attention_norm);
  const at::Tensor attended = causal_attention(
      c, at::matmul(normed, qkv[0].t()), at::matmul(normed, qkv[1].t()), at::matmul(normed, qkv[2].t()));
  const at::Tensor middle = x + at::matmul(attended, w.attention_out.t());
  const auto gate_up = w.gate_up.chunk(2, 0);
  const at::Tensor ffn = norm(middle, w.ffn_norm);
  const at::Tensor gate = at::matmul(ffn, gate_up[0].t());
  const at::Tensor activated = gate * gate.sigmoid() * at::matmul(ffn, gate_up[1].t());
  return middle + at::matmul(activated, w.down.t());
}

at::Tensor reference_head(const HeadTensors& w, const at::Tensor& x, const at::Tensor& targets) {
  const at::Tensor log_probabilities = at::matmul(norm(x, w.norm), w.output.t()).log_softmax(-1);
  const at::Tensor counted = targets >= 0;
  const at::Tensor picked = log_probabilities.gather(1, targets.clamp_min(0).unsqueeze(1)).squeeze(1);
  return -(picked * counted).sum();
}

}  // namespace lockstep::nn::test
