// What the tests of layers share: shapes, random tensors, threads as tensor-parallel ranks, cutting and
// joining.
#pragma once

#include <ATen/ATen.h>

#include <functional>
#include <string>
#include <vector>

#include "comm/communicator.hpp"
#include "nn/context.hpp"
#include "nn/head.hpp"
#include "nn/transformer_layer.hpp"

namespace lockstep::nn::test {

struct Case {
  int64_t micro_batch = 1;
  int64_t sequence = 8;
  int64_t heads = 4;
  int64_t kv_heads = 2;
  int64_t head_dim = 4;
  int64_t ffn = 24;
  int64_t vocab = 32;
  int64_t tp = 1;
  bool sequence_parallel = false;
  config::Dtype dtype = config::Dtype::fp64;

  int64_t hidden() const { return heads * head_dim; }
  int64_t tokens() const { return micro_batch * sequence; }
  model::ShardShape shape() const;
  double tolerance() const;  // of a tensor's norm
};
std::string describe(const Case& c);

// The shapes that every layer is held against its reference on: tp 1, 2, 4, with and without sequence
// parallel, several sequences, odd counts of tokens, kv_heads == heads and less, in three element types.
std::vector<Case> all_cases();

inline constexpr double rope_theta = 10000.0;
inline constexpr double norm_eps = 1e-5;

// One thread a rank; each gets its context and holds a NoGradGuard. What a rank throws is
// thrown on.
void run_ranks(const Case& c, const std::function<void(Context& ctx, OpLog& log)>& body);

// Normal values times `scale`, fp64, rounded to the case's type so that every precision starts from the same
// numbers.
at::Tensor random_tensor(const Case& c, at::IntArrayRef sizes, double scale, uint64_t seed);

// Norm of (actual - expected) relative to that of expected, in fp64. Fails on other sizes and on NaN.
double relative_error(const at::Tensor& actual, const at::Tensor& expected);

// This rank's part of a layer's whole tensors and back; qkv and gate_up are cut piece by piece. Norms are
// whole.
LayerTensors shard(const Case& c, const LayerTensors& whole, int64_t rank);
LayerTensors join(const Case& c, const std::vector<LayerTensors>& parts);
at::Tensor shard_rows(const at::Tensor& whole, int64_t parts, int64_t rank);
// Rows of hidden states [T, H] that a rank holds.
at::Tensor shard_tokens(const Case& c, const at::Tensor& whole, int64_t rank);
at::Tensor join_tokens(const Case& c, const std::vector<at::Tensor>& parts);
// Of a norm's weight: the ranks' sum with sequence parallel; else they must all be equal.
at::Tensor join_norm_gradients(const Case& c, const std::vector<at::Tensor>& parts);

LayerTensors map(const LayerTensors& tensors, const std::function<at::Tensor(const at::Tensor&)>& f);

}  // namespace lockstep::nn::test
