#include "model/parameters.hpp"

#include <cmath>

namespace lockstep::model {

namespace {

// Weights and biases of a gpt layer, cut as Megatron-LM does: a bias like its matrix's rows.
void append_gpt_layer(std::vector<Parameter>& out, const config::ModelConfig& m, int64_t layer) {
  const std::string prefix = "model.layers." + std::to_string(layer) + ".";
  const int64_t q_rows = m.heads * m.head_dim(), kv_rows = m.kv_heads * m.head_dim();
  const double out_std = m.init_std / std::sqrt(2.0 * static_cast<double>(m.layers));
  const auto add = [&](const std::string& name, int64_t rows, int64_t cols, Cut cut, double std) {
    out.push_back({prefix + name, rows, cols, cut, std, cols == 1 ? Family::norm : Family::matrix});
    out.back().layer = layer;
  };
  const auto norm = [&](const std::string& name) {
    add(name + ".weight", m.hidden, 1, Cut::replicated, 0);
    add(name + ".bias", m.hidden, 1, Cut::replicated, 0);
  };
  const auto product = [&](const std::string& name, int64_t rows, int64_t cols, Cut cut, int64_t most_parts) {
    add(name + ".weight", rows, cols, cut, cut == Cut::columns ? out_std : m.init_std);
    out.back().most_parts = most_parts;
    add(name + ".bias", rows, 1, cut == Cut::rows ? Cut::rows : Cut::replicated, 0);
    out.back().most_parts = most_parts;
  };
  norm("input_layernorm");
  product("self_attn.q_proj", q_rows, m.hidden, Cut::rows, INT64_MAX);
  product("self_attn.k_proj", kv_rows, m.hidden, Cut::rows, m.kv_heads);
  product("self_attn.v_proj", kv_rows, m.hidden, Cut::rows, m.kv_heads);
  product("self_attn.o_proj", m.hidden, q_rows, Cut::columns, INT64_MAX);
  norm("post_attention_layernorm");
  product("mlp.up_proj", m.ffn, m.hidden, Cut::rows, INT64_MAX);
  product("mlp.down_proj", m.hidden, m.ffn, Cut::columns, INT64_MAX);
}

void append_layer(std::vector<Parameter>& out, const config::ModelConfig& m, int64_t layer) {
  if (m.architecture == config::Architecture::gpt) return append_gpt_layer(out, m, layer);
  const std::string prefix = "model.layers." + std::to_string(layer) + ".";
  const int64_t q_rows = m.heads * m.head_dim();
  const int64_t kv_rows = m.kv_heads * m.head_dim();
  // Products that write into the residual stream start smaller, so its variance does not grow with depth
  // (GPT-2's scheme, as Megatron and torchtitan use for Llama).
  const double out_std = m.init_std / std::sqrt(2.0 * static_cast<double>(m.layers));
  const auto add = [&](const char* name, int64_t rows, int64_t cols, Cut cut, double std) {
    out.push_back({prefix + name, rows, cols, cut, std, std == 0 ? Family::norm : Family::matrix});
    out.back().layer = layer;
  };
  const auto add_kv = [&](const char* name) {
    add(name, kv_rows, m.hidden, Cut::rows, m.init_std);
    out.back().most_parts = m.kv_heads;
  };
  add("input_layernorm.weight", m.hidden, 1, Cut::replicated, 0);
  add("self_attn.q_proj.weight", q_rows, m.hidden, Cut::rows, m.init_std);
  add_kv("self_attn.k_proj.weight");
  add_kv("self_attn.v_proj.weight");
  add("self_attn.o_proj.weight", m.hidden, q_rows, Cut::columns, out_std);
  add("post_attention_layernorm.weight", m.hidden, 1, Cut::replicated, 0);
  add("mlp.gate_proj.weight", m.ffn, m.hidden, Cut::rows, m.init_std);
  add("mlp.up_proj.weight", m.ffn, m.hidden, Cut::rows, m.init_std);
  add("mlp.down_proj.weight", m.hidden, m.ffn, Cut::columns, out_std);
}

ChunkContent whole_model(const config::ModelConfig& m) { return {0, m.layers, true, true}; }

Parameter vocabulary_matrix(const config::ModelConfig& m, const char* name, Family family) {
  return {name, m.vocab, m.hidden, Cut::rows, m.init_std, family};
}

template <class Takes>
int64_t local_count(const config::ModelConfig& m, const ChunkContent& content, int64_t tp, Takes takes) {
  const auto count = [&](const ChunkContent& part) {
    int64_t sum = 0;
    for (const Parameter& p : chunk_parameters(m, part)) {
      if (takes(p)) sum += p.local_count(tp);
    }
    return sum;
  };
  // All layers have the same parameters.
  const int64_t layers = content.layers == 0 ? 0 : content.layers * count({0, 1, false, false});
  ChunkContent ends = content;
  ends.layers = 0;
  return layers + count(ends);
}

}  // namespace

std::vector<Parameter> chunk_parameters(const config::ModelConfig& m, const ChunkContent& content) {
  std::vector<Parameter> out;
  const auto embedding = [&] {
    out.push_back(vocabulary_matrix(m, "model.embed_tokens.weight", Family::embedding));
  };
  const bool gpt = m.architecture == config::Architecture::gpt;
  if (content.embedding) embedding();
  if (content.embedding && gpt) {
    out.push_back({"model.embed_positions.weight", m.positions, m.hidden, Cut::replicated, m.init_std,
                   Family::embedding});
  }
  for (int64_t i = 0; i < content.layers; ++i) append_layer(out, m, content.first_layer + i);
  if (!content.head) return out;
  out.push_back({"model.norm.weight", m.hidden, 1, Cut::replicated, 0, Family::norm});
  if (gpt) out.push_back({"model.norm.bias", m.hidden, 1, Cut::replicated, 0, Family::norm});
  if (!m.tie_embeddings) {
    out.push_back(vocabulary_matrix(m, "lm_head.weight", Family::output));
  } else if (!content.embedding && !content.one_tied_matrix) {
    embedding();
    out.back().tied_copy = true;
  }
  return out;
}

std::vector<Parameter> model_parameters(const config::ModelConfig& m) {
  return chunk_parameters(m, whole_model(m));
}

int64_t local_parameter_count(const config::ModelConfig& m, const ChunkContent& content, int64_t tp) {
  return local_count(m, content, tp, [](const Parameter&) { return true; });
}

int64_t replicated_parameter_count(const config::ModelConfig& m, const ChunkContent& content) {
  return local_count(m, content, 1, [](const Parameter& p) { return p.cut == Cut::replicated; });
}

int64_t kv_parameter_count(const config::ModelConfig& m, const ChunkContent& content, int64_t tp) {
  return local_count(m, content, tp, [](const Parameter& p) { return p.is_kv(); });
}

int64_t tied_parameter_count(const config::ModelConfig& m, const ChunkContent& content, int64_t tp) {
  if (!m.tie_embeddings || content.embedding == content.head || content.one_tied_matrix) return 0;
  return local_count(m, content, tp,
                     [](const Parameter& p) { return p.family == Family::embedding && p.cut == Cut::rows; });
}

int64_t parameter_count(const config::ModelConfig& m) { return local_parameter_count(m, whole_model(m), 1); }

int64_t multiplying_parameter_count(const config::ModelConfig& m) {
  const int64_t lookup = m.tie_embeddings ? 0 : m.vocab * m.hidden;
  return local_count(m, whole_model(m), 1,
                     [](const Parameter& p) { return p.cut != Cut::replicated && p.cols > 1; }) -
         lookup;
}

double flops_per_token(const config::ModelConfig& m, int64_t sequence, bool causal) {
  const double attention =
      12.0 * static_cast<double>(m.layers) * static_cast<double>(m.hidden) * static_cast<double>(sequence);
  return 6.0 * static_cast<double>(multiplying_parameter_count(m)) + (causal ? attention / 2 : attention);
}

}  // namespace lockstep::model
