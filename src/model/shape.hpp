// Sizes of one rank's part of the model, in the letters that the layer program uses.
#pragma once

#include <algorithm>
#include <cstdint>

#include "config/run_file.hpp"

namespace lockstep::model {

// Everything is per rank, for one micro-batch.
struct ShardShape {
  int64_t sequence = 0;        // S: tokens of one whole sequence
  int64_t tokens = 0;          // T: micro_batch x S / cp
  int64_t tokens_sharded = 0;  // t: T / tp with sequence parallel, else T
  int64_t hidden = 0;          // H
  int64_t heads = 0;           // h: query heads of this rank: heads / tp
  int64_t kv_heads = 0;        // kv: kv_heads / tp, at least 1
  int64_t kv_copies = 1;       // ranks of tp that hold the same key and value heads
  int64_t head_dim = 0;        // D
  int64_t ffn = 0;             // F: ffn / tp
  int64_t vocab = 0;           // V: rows of this rank, the vocabulary padded to a multiple of tp
  int64_t model_vocab = 0;     // rows of the vocabulary itself, over all ranks
  int64_t tp = 1;
  int64_t cp = 1;
  bool sequence_parallel = false;  // true only where tp > 1
  bool keep_gathered = false;      // keep the gathered inputs of products; true only with sequence_parallel
  int64_t element_bytes = 2;       // of weights and activations
  int64_t gradient_bytes = 4;      // of accumulated gradients: software.gradient_dtype
  int64_t statistic_bytes = 4;     // of softmax and loss statistics: fp32, or fp64
  int64_t state_bytes = 4;         // of master weights and moments: the same
  // What the training software does (config::SoftwareConfig).
  bool gpt = false;
  bool scores = false;   // attention's scores lie in memory
  bool dropout = false;  // true only with gpt
  config::CrossEntropy cross_entropy = config::CrossEntropy::fused;
  bool recompute_early_stop = true;
  bool tensor_parallel_copies = false;
  double elementwise_traffic = 1;

  int64_t qkv_width() const { return (heads + 2 * kv_heads) * head_dim; }
  int64_t kv_width() const { return 2 * kv_heads * head_dim; }
  int64_t tokens_all() const { return tokens * cp; }  // micro_batch x S: of all context-parallel ranks
  int64_t activation_width() const { return gpt ? ffn : 2 * ffn; }  // input of GELU, or of SwiGLU
  // Elements of attention's scores: every query head's [S / cp, S] of each sequence, the full square.
  int64_t score_elements() const { return tokens * heads * sequence; }
  // Rows that rank `tp_rank` holds of the vocabulary itself; its others are padding.
  int64_t vocab_rows(int64_t tp_rank) const {
    return std::clamp<int64_t>(model_vocab - tp_rank * vocab, 0, vocab);
  }
};

ShardShape shard_shape(const config::RunFile& run);

int64_t element_bytes(config::Dtype dtype);
// Gradients are accumulated and reduced in fp32 (fp64 in fp64 runs), or in the dtype of compute.
int64_t gradient_bytes(config::Dtype dtype, config::GradientDtype kind = config::GradientDtype::fp32);

}  // namespace lockstep::model
