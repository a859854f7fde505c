// The model's parameters: names (Hugging Face's), shapes, and how tensor parallel cuts them.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "config/run_file.hpp"

namespace lockstep::model {

// How tensor parallel divides a matrix [rows, cols] (rows = outputs).
enum class Cut : uint8_t {
  replicated,  // every rank holds all of it: norms
  rows,        // rank t holds rows [t R/tp, (t+1) R/tp): column-parallel products, embedding, head
  columns,     // rank t holds columns [t C/tp, (t+1) C/tp): row-parallel products
};

struct Parameter {
  std::string name;
  int64_t rows = 0;
  int64_t cols = 1;  // 1 for a vector
  Cut cut = Cut::replicated;
  double init_std = 0;  // standard deviation of the initial normal values; 0: ones (a norm's weight)
  bool decay = true;    // weight decay applies

  int64_t count() const { return rows * cols; }
  int64_t local_rows(int64_t tp) const { return cut == Cut::rows ? rows / tp : rows; }
  int64_t local_cols(int64_t tp) const { return cut == Cut::columns ? cols / tp : cols; }
  int64_t local_count(int64_t tp) const { return local_rows(tp) * local_cols(tp); }
};

// What one pipeline chunk holds. `layers` may be 0 (embedding only, output only).
struct ChunkContent {
  int64_t first_layer = 0;
  int64_t layers = 0;
  bool embedding = false;
  bool head = false;  // final norm, output matrix, loss

  bool operator==(const ChunkContent&) const = default;
};

// In the model's own order: embedding, layers, final norm, output matrix. Within a layer q, k, v stand
// together, and so do gate and up, so that each triple or pair is one matrix.
std::vector<Parameter> chunk_parameters(const config::ModelConfig& model, const ChunkContent& content);
std::vector<Parameter> model_parameters(const config::ModelConfig& model);

int64_t parameter_count(const config::ModelConfig& model);
// Parameters that take part in matrix products: all but the input embedding (a lookup) and the norms.
int64_t multiplying_parameter_count(const config::ModelConfig& model);
// Elements that one tensor-parallel rank holds of a chunk.
int64_t local_parameter_count(const config::ModelConfig& model, const ChunkContent& content, int64_t tp);
// Of those, elements of parameters that tensor parallel replicates.
int64_t replicated_parameter_count(const config::ModelConfig& model, const ChunkContent& content);

// FLOPs per trained token. Attention as if full: 6 N + 12 layers hidden sequence (PaLM, arXiv:2204.02311,
// appendix B; N = multiplying parameters). `causal` counts half of the attention term.
double flops_per_token(const config::ModelConfig& model, int64_t sequence, bool causal);

}  // namespace lockstep::model
