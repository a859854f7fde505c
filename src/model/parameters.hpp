// The model's parameters: names (Hugging Face's), shapes, and how tensor parallel cuts them.
#pragma once

#include <algorithm>
#include <cstdint>
#include <string>
#include <vector>

#include "config/run_file.hpp"

namespace lockstep::model {

// How tensor parallel divides a matrix [rows, cols] (rows = outputs).
enum class Cut : uint8_t {
  replicated,  // every rank holds all of it: norms
  rows,        // rank t holds rows [t R/tp, (t+1) R/tp): column-parallel products, embedding, output
  columns,     // rank t holds columns [t C/tp, (t+1) C/tp): row-parallel products
};

// Which parameters are spared weight decay together (train.no_decay).
// Biases go with norms, learned positions with the embedding.
enum class Family : uint8_t { norm, embedding, output, matrix };

struct Parameter {
  std::string name;
  int64_t rows = 0;
  int64_t cols = 1;  // 1 for a vector
  Cut cut = Cut::replicated;
  double init_std =
      0;  // standard deviation of the initial normal values; 0: ones (a norm's weight), or a bias's zeros
  Family family = Family::matrix;
  int64_t layer = -1;  // of the whole model, that it belongs to; -1: none
  // Distinct parts that the rows have at most: kv_heads for k and v, of which further ranks hold copies.
  int64_t most_parts = INT64_MAX;
  // The last stage's copy of a tied embedding: the same weights as the first stage's, which count.
  bool tied_copy = false;

  bool is_kv() const { return most_parts != INT64_MAX; }  // a key or value matrix
  int64_t count() const { return rows * cols; }
  int64_t parts(int64_t tp) const { return cut == Cut::replicated ? 1 : std::min(tp, most_parts); }
  int64_t copies(int64_t tp) const { return tp / parts(tp); }  // ranks that hold the same part
  // Rows are padded where parts do not divide them (the vocabulary): the last ranks' then have fewer
  // valid_rows, or none.
  int64_t local_rows(int64_t tp) const {
    return cut == Cut::rows ? (rows + parts(tp) - 1) / parts(tp) : rows;
  }
  int64_t local_cols(int64_t tp) const { return cut == Cut::columns ? cols / tp : cols; }
  int64_t local_count(int64_t tp) const { return local_rows(tp) * local_cols(tp); }
  // Of the part that `tp_rank` holds.
  int64_t first_row(int64_t tp, int64_t tp_rank) const {
    return cut == Cut::rows ? tp_rank / copies(tp) * local_rows(tp) : 0;
  }
  int64_t first_col(int64_t tp, int64_t tp_rank) const {
    return cut == Cut::columns ? tp_rank * local_cols(tp) : 0;
  }
  int64_t valid_rows(int64_t tp, int64_t tp_rank) const {
    return std::clamp<int64_t>(rows - first_row(tp, tp_rank), 0, local_rows(tp));
  }
  // Of the ranks that hold the same part, the one whose copy counts in norms and hashes.
  bool counts_on(int64_t tp, int64_t tp_rank) const {
    return !tied_copy && (cut == Cut::replicated ? tp_rank == 0 : tp_rank % copies(tp) == 0);
  }
};

// What one pipeline chunk holds. `layers` may be 0 (embedding only, output only).
struct ChunkContent {
  int64_t first_layer = 0;
  int64_t layers = 0;
  bool embedding = false;
  bool head = false;  // final norm, output matrix, loss
  // Embedding and head are tied and lie in two chunks of one rank, which holds one matrix: the embedding's.
  bool one_tied_matrix = false;

  bool operator==(const ChunkContent&) const = default;
};

// In the model's own order: embedding, layers, final norm, output matrix (with tied embeddings a copy of the
// embedding under its name, where neither the chunk nor another of its rank holds the embedding itself).
// Within a layer q, k, v stand together, and so do gate and up, so that each triple or pair is one matrix.
std::vector<Parameter> chunk_parameters(const config::ModelConfig& model, const ChunkContent& content);
std::vector<Parameter> model_parameters(const config::ModelConfig& model);

int64_t parameter_count(const config::ModelConfig& model);
// Parameters that take part in matrix products: all but norms, biases, positions and, where it is not the
// output matrix too, the input embedding (a lookup).
int64_t multiplying_parameter_count(const config::ModelConfig& model);
// Elements that one tensor-parallel rank holds of a chunk, padding and a tied copy included.
int64_t local_parameter_count(const config::ModelConfig& model, const ChunkContent& content, int64_t tp);
// Of those, elements of parameters that tensor parallel replicates.
int64_t replicated_parameter_count(const config::ModelConfig& model, const ChunkContent& content);
// Of those, elements of key and value matrices.
int64_t kv_parameter_count(const config::ModelConfig& model, const ChunkContent& content, int64_t tp);
// Elements that one rank holds of a tied embedding of which another stage holds the other copy; else 0.
int64_t tied_parameter_count(const config::ModelConfig& model, const ChunkContent& content, int64_t tp);

// FLOPs per trained token. Attention as if full: 6 N + 12 layers hidden sequence (PaLM, arXiv:2204.02311,
// appendix B; N = multiplying parameters). `causal` counts half of the attention term.
double flops_per_token(const config::ModelConfig& model, int64_t sequence, bool causal);

}  // namespace lockstep::model
