#include "reference.hpp"

#include <cmath>
#include <limits>

namespace lockstep::nn::test {

namespace {

at::Tensor norm(const at::Tensor& x, const at::Tensor& weight) {
  return x / (x.square().mean(-1, true) + norm_eps).sqrt() * weight;
}

// Hugging Face's apply_rotary_pos_emb on [B, heads, S, D], at positions [B, S].
at::Tensor rotate(const at::Tensor& x, const at::Tensor& positions) {
  const int64_t dim = x.size(3);
  const auto f64 = at::TensorOptions(at::kDouble);
  const at::Tensor frequencies =
      1.0 / at::pow(rope_theta, at::arange(0, dim, 2, f64) / static_cast<double>(dim));
  const at::Tensor half_angles = (positions.to(at::kDouble).unsqueeze(-1) * frequencies).unsqueeze(1);
  const at::Tensor angles = at::cat({half_angles, half_angles}, -1);
  const auto halves = x.chunk(2, -1);
  return x * angles.cos() + at::cat({-halves[1], halves[0]}, -1) * angles.sin();
}

at::Tensor split_heads(const Case& c, const at::Tensor& x, int64_t heads) {
  return x.view({c.micro_batch, c.sequence, heads, c.head_dim}).transpose(1, 2);
}

// 0 where a token [B, 1, S, .] may see a key [B, 1, ., S]: not behind it, and of the same document; else
// -infinity.
at::Tensor attention_mask(const at::Tensor& starts) {
  const int64_t sequence = starts.size(1);
  const at::Tensor place = at::arange(sequence, at::kLong);
  const at::Tensor later = place.unsqueeze(0) > place.unsqueeze(1);
  const at::Tensor other = starts.unsqueeze(2) != starts.unsqueeze(1);
  return at::zeros({starts.size(0), sequence, sequence}, at::kDouble)
      .masked_fill(at::logical_or(other, later.unsqueeze(0)), -std::numeric_limits<double>::infinity())
      .unsqueeze(1);
}

at::Tensor causal_attention(const Case& c, const at::Tensor& q_flat, const at::Tensor& k_flat,
                            const at::Tensor& v_flat) {
  const int64_t group = c.heads / c.kv_heads;
  const at::Tensor starts = document_starts(c).view({c.micro_batch, c.sequence});
  const at::Tensor positions = at::arange(c.sequence, at::kLong).unsqueeze(0) - starts;
  const at::Tensor q = rotate(split_heads(c, q_flat, c.heads), positions);
  const at::Tensor k = rotate(split_heads(c, k_flat, c.kv_heads), positions).repeat_interleave(group, 1);
  const at::Tensor v = split_heads(c, v_flat, c.kv_heads).repeat_interleave(group, 1);
  const at::Tensor scores =
      at::matmul(q, k.transpose(2, 3)) / std::sqrt(static_cast<double>(c.head_dim)) + attention_mask(starts);
  const at::Tensor out = at::matmul(scores.softmax(-1), v);
  return out.transpose(1, 2).reshape({c.tokens(), c.hidden()});
}

}  // namespace

at::Tensor document_starts(const Case& c) {
  at::Tensor starts = at::zeros({c.micro_batch, c.sequence}, at::kLong);
  for (int64_t b = 0; b < c.micro_batch && !c.documents.empty(); ++b) {
    for (const int64_t start : c.documents[static_cast<size_t>(b) % c.documents.size()]) {
      starts[b].slice(0, start).fill_(start);
    }
  }
  return starts.flatten();
}

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
