// What the tests of layers share: shapes, random tensors, threads as tensor- and context-parallel ranks,
// cutting and joining.
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
  int64_t cp = 1;
  bool sequence_parallel = false;
  bool keep_gathered = false;
  // Places at which documents begin, of each sequence in turn; empty: no document mask.
  std::vector<std::vector<int64_t>> documents = {};
  config::Dtype dtype = config::Dtype::fp64;

  int64_t hidden() const { return heads * head_dim; }
  int64_t tokens() const { return micro_batch * sequence; }
  size_t ranks() const { return static_cast<size_t>(tp * cp); }
  model::ShardShape shape() const;
  double tolerance() const;  // of a tensor's norm
};
std::string describe(const Case& c);
std::string describe(const model::Recompute& recompute);

// Of every token of the micro-batch, [B S]: the place in its sequence at which its document begins.
at::Tensor document_starts(const Case& c);

// The shapes that every layer is held against its reference on: tp 1, 2, 4, with and without sequence
// parallel, several sequences, odd counts of tokens, kv_heads == heads and less, in three element types.
std::vector<Case> all_cases();

inline constexpr double rope_theta = 10000.0;
inline constexpr double norm_eps = 1e-5;

// Context parallel 2 and 4, alone, with tensor and with sequence parallel; each with and without documents
// that begin at chunk borders and elsewhere and may have one token.
std::vector<Case> cut_cases();
// Documents without context parallel.
std::vector<Case> masked_cases();

// One thread a rank, tp innermost; each gets its context and holds a NoGradGuard. What a rank throws is
// thrown on.
void run_ranks(const Case& c, const std::function<void(Context& ctx, OpLog& log)>& body);
size_t rank_of(const Context& ctx);  // 0 .. ranks - 1

// Normal values times `scale`, fp64, rounded to the case's type so that every precision starts from the same
// numbers.
at::Tensor random_tensor(const Case& c, at::IntArrayRef sizes, double scale, uint64_t seed);

// Norm of (actual - expected) relative to that of expected, in fp64. Fails on other sizes and on NaN.
double relative_error(const at::Tensor& actual, const at::Tensor& expected);

// A tensor-parallel rank's part of a layer's whole tensors; qkv and gate_up are cut piece by piece. Norms are
// whole, and so are k and v heads of which there are fewer than ranks.
LayerTensors shard(const Case& c, const LayerTensors& whole, int64_t tp_rank);
// The whole gradients from those of all ranks: parts are put together, what several hold is summed.
LayerTensors join(const Case& c, const std::vector<LayerTensors>& gradients);
// A rank's rows of the vocabulary; padding is `padding`.
at::Tensor shard_vocabulary(const Case& c, const at::Tensor& whole, int64_t tp_rank, double padding);
// Expects the gradient of padding to be exactly 0.
at::Tensor join_vocabulary(const Case& c, const std::vector<at::Tensor>& gradients);

// Rows that a rank holds of [B S, ..]: all of its context-parallel chunks (ids, targets), or with sequence
// parallel a part of those (hidden states).
at::Tensor own_tokens(const Case& c, const at::Tensor& whole, int64_t cp_rank);
at::Tensor shard_tokens(const Context& ctx, const Case& c, const at::Tensor& whole);
// With the case's document mask, if any.
TokenPlaces places_of(const Context& ctx, const Case& c);
at::Tensor join_tokens(const Case& c, const std::vector<at::Tensor>& parts);
// Of a norm's weight: the sum over tp with sequence parallel, else they must all be equal; the sum over cp.
at::Tensor join_norm_gradients(const Case& c, const std::vector<at::Tensor>& parts);

LayerTensors random_layer(const Case& c);
LayerTensors map(const LayerTensors& tensors, const std::function<at::Tensor(const at::Tensor&)>& f);

}  // namespace lockstep::nn::test
