#include "model/parameters.hpp"

#include <cmath>

namespace lockstep::model {

namespace {

void append_layer(std::vector<Parameter>& out, const config::ModelConfig& m, int64_t layer) {
  const std::string prefix = "model.layers." + std::to_string(layer) + ".";
  const int64_t q_rows = m.heads * m.head_dim();
  const int64_t kv_rows = m.kv_heads * m.head_dim();
  // Products that write into the residual stream start smaller, so its variance does not grow with depth
  // (GPT-2's scheme, as Megatron and torchtitan use for Llama).
  const double out_std = m.init_std / std::sqrt(2.0 * static_cast<double>(m.layers));
  const auto add = [&](const char* name, int64_t rows, int64_t cols, Cut cut, double std, bool decay) {
    out.push_back({prefix + name, rows, cols, cut, std, decay});
  };
  add("input_layernorm.weight", m.hidden, 1, Cut::replicated, 0, false);
  add("self_attn.q_proj.weight", q_rows, m.hidden, Cut::rows, m.init_std, true);
  add("self_attn.k_proj.weight", kv_rows, m.hidden, Cut::rows, m.init_std, true);
  add("self_attn.v_proj.weight", kv_rows, m.hidden, Cut::rows, m.init_std, true);
  add("self_attn.o_proj.weight", m.hidden, q_rows, Cut::columns, out_std, true);
  add("post_attention_layernorm.weight", m.hidden, 1, Cut::replicated, 0, false);
  add("mlp.gate_proj.weight", m.ffn, m.hidden, Cut::rows, m.init_std, true);
  add("mlp.up_proj.weight", m.ffn, m.hidden, Cut::rows, m.init_std, true);
  add("mlp.down_proj.weight", m.hidden, m.ffn, Cut::columns, out_std, true);
}

ChunkContent whole_model(const config::ModelConfig& m) { return {0, m.layers, true, true}; }

}  // namespace

std::vector<Parameter> chunk_parameters(const config::ModelConfig& m, const ChunkContent& content) {
  std::vector<Parameter> out;
  if (content.embedding) {
    out.push_back({"model.embed_tokens.weight", m.vocab, m.hidden, Cut::rows, m.init_std, true});
  }
  for (int64_t i = 0; i < content.layers; ++i) append_layer(out, m, content.first_layer + i);
  if (content.head) {
    out.push_back({"model.norm.weight", m.hidden, 1, Cut::replicated, 0, false});
    out.push_back({"lm_head.weight", m.vocab, m.hidden, Cut::rows, m.init_std, true});
  }
  return out;
}

std::vector<Parameter> model_parameters(const config::ModelConfig& m) {
  return chunk_parameters(m, whole_model(m));
}

int64_t local_parameter_count(const config::ModelConfig& m, const ChunkContent& content, int64_t tp) {
  int64_t count = 0;
  for (const Parameter& p : chunk_parameters(m, content)) count += p.local_count(tp);
  return count;
}

int64_t replicated_parameter_count(const config::ModelConfig& m, const ChunkContent& content) {
  int64_t count = 0;
  for (const Parameter& p : chunk_parameters(m, content)) {
    if (p.cut == Cut::replicated) count += p.count();
  }
  return count;
}

int64_t parameter_count(const config::ModelConfig& m) { return local_parameter_count(m, whole_model(m), 1); }

int64_t multiplying_parameter_count(const config::ModelConfig& m) {
  return parameter_count(m) - replicated_parameter_count(m, whole_model(m)) - m.vocab * m.hidden;
}

double flops_per_token(const config::ModelConfig& m, int64_t sequence, bool causal) {
  const double attention =
      12.0 * static_cast<double>(m.layers) * static_cast<double>(m.hidden) * static_cast<double>(sequence);
  return 6.0 * static_cast<double>(multiplying_parameter_count(m)) + (causal ? attention / 2 : attention);
}

}  // namespace lockstep::model
