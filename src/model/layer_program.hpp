// The layer program: which ops the parts of a chunk consist of, in order. The trainer (nn) runs exactly these
// and records them; the simulator prices them. Letters as in model/shape.hpp.
#pragma once

#include <string>
#include <vector>

#include "model/op.hpp"
#include "model/parameters.hpp"
#include "model/shape.hpp"

namespace lockstep::model {

// Which outputs are dropped after forward and computed again in backward.
struct Recompute {
  bool norm = false;  // outputs of both norms
  bool activation =
      false;               // the activation function's output: SwiGLU's (run file: "swiglu"), GELU's ("gelu")
  bool attention = false;  // attention's output, or its scores (q, k, v are kept)
  bool full = false;       // everything but the layer's input
  // With full: but for attention's output, q, v, gate and down, so that of every two products one runs again,
  // as torchtitan's selective recomputation by op has it (llama models).
  bool second_products = false;
  int64_t every = 1;  // layers 0, every, 2 every, ... of the model; the others keep everything

  // What layer `layer` of the whole model drops.
  Recompute at(int64_t layer) const { return layer % every == 0 ? *this : Recompute{}; }
  bool operator==(const Recompute&) const = default;
};
Recompute recompute_of(const config::ParallelConfig& parallel);

// Which of a layer's tensors outlive its forward, beside its input, which always does.
struct Keeps {
  // `scores`: attention's scores lie in memory.
  explicit Keeps(const Recompute& of_layer, bool scores = false)
      : norm(!of_layer.full && !of_layer.norm),
        attention(of_layer.second_products || (!of_layer.full && !of_layer.attention)),
        attention_output(of_layer.second_products || (!of_layer.full && (!of_layer.attention || scores))),
        activation(!of_layer.full && !of_layer.activation),
        rest(!of_layer.full) {}
  bool norm, attention;   // what Recompute names: of attention its statistics, or scores
  bool attention_output;  // goes with the statistics; with scores in memory it stays
  bool activation;        // SwiGLU's or GELU's output: the input of the down product
  bool rest;              // q, k, v; the second norm's input; gate and up; masks of dropout
};

struct LayerProgram {
  ShardShape shape;
  Recompute recompute;

  std::vector<Op> layer_forward() const;
  // What full recomputation runs: the forward without what backward does not need, or all of it
  // (ShardShape::recompute_early_stop).
  std::vector<Op> layer_recompute() const;
  // The two halves of one layer's backward, given what that layer recomputes. Recomputed here: what an input
  // gradient needs, or whose own input can go then; the norms' outputs only where the weights need them.
  std::vector<Op> layer_backward_input(const Recompute& of_layer) const;
  std::vector<Op> layer_backward_weight(const Recompute& of_layer) const;

  std::vector<Op> embedding_forward() const;
  std::vector<Op> embedding_backward() const;  // a weight gradient
  std::vector<Op> head_forward() const;        // final norm, output matrix, loss
  std::vector<Op> head_backward_input() const;
  std::vector<Op> head_backward_weight() const;

  // A whole chunk, in the order in which it runs. Backward is fused (each layer's input half, then its weight
  // half), or cut into a zero-bubble schedule's two halves.
  std::vector<Op> chunk_forward(const ChunkContent& content) const;
  std::vector<Op> chunk_backward(const ChunkContent& content) const;
  std::vector<Op> chunk_backward_input(const ChunkContent& content) const;
  std::vector<Op> chunk_backward_weight(const ChunkContent& content) const;
};

// Bytes of q, v, gate and down, which Recompute::second_products keeps beside attention's output.
int64_t kept_products_bytes(const ShardShape& shape);
// Bytes that one layer keeps per micro-batch between its forward and its backward, on one rank. Document
// places (nn::TokenPlaces) belong to the micro-batch and are not counted.
int64_t layer_activation_bytes(const ShardShape& shape, const Recompute& of_layer);
// Bytes that it holds between the two halves of its backward: the four products' inputs (with recompute.norm
// the norms' inputs) and the gradients of their outputs.
int64_t layer_stash_bytes(const ShardShape& shape, const Recompute& of_layer);
// The same for a whole chunk. Activations: token ids at the embedding; at the head the final norm's input and
// output, logits, statistics and targets. Stash: ids, dropout's mask and the gradient of the embedding's
// output; at the head the final norm's output and the gradient of the logits.
int64_t chunk_activation_bytes(const ShardShape& shape, const Recompute& recompute,
                               const ChunkContent& content);
int64_t chunk_stash_bytes(const ShardShape& shape, const Recompute& recompute, const ChunkContent& content);
// Of one place of dropout in the residual stream: a byte for each element of the rank's shard; 0 without.
int64_t dropout_mask_bytes(const ShardShape& shape);
// Of a logit that is kept for backward: as computed, or the fp32 copy of a loss that is not fused.
int64_t logit_bytes(const ShardShape& shape);
// Bytes of the hidden state that crosses a pipeline border.
int64_t boundary_bytes(const ShardShape& shape);

}  // namespace lockstep::model
