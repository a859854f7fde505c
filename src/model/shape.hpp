// Sizes of one rank's part of the model, in the letters that the layer program uses.
#pragma once

#include <cstdint>

#include "config/run_file.hpp"

namespace lockstep::model {

// Everything is per rank, for one micro-batch.
struct ShardShape {
  int64_t sequence = 0;        // S: tokens of one sequence
  int64_t tokens = 0;          // T: micro_batch x sequence
  int64_t tokens_sharded = 0;  // T / tp with sequence parallel, else T
  int64_t hidden = 0;          // H
  int64_t heads = 0;           // query heads of this rank: heads / tp
  int64_t kv_heads = 0;        // kv_heads / tp
  int64_t head_dim = 0;        // D
  int64_t ffn = 0;             // F: ffn / tp
  int64_t vocab = 0;           // V: vocab / tp
  int64_t tp = 1;
  bool sequence_parallel = false;  // true only where tp > 1
  int64_t element_bytes = 2;       // of weights and activations
  int64_t gradient_bytes = 4;      // of accumulated gradients: fp32, or fp64 in fp64 runs
  int64_t statistic_bytes = 4;     // of softmax and loss statistics: fp32, or fp64

  int64_t qkv_width() const { return (heads + 2 * kv_heads) * head_dim; }
};

ShardShape shard_shape(const config::RunFile& run);

int64_t element_bytes(config::Dtype dtype);
// Gradients are accumulated and reduced in fp32 (fp64 in fp64 runs).
int64_t gradient_bytes(config::Dtype dtype);

}  // namespace lockstep::model
