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
  bool norm = false;       // outputs of both norms
  bool swiglu = false;     // input of the down product
  bool attention = false;  // attention's output (q, k, v are kept)
  bool full = false;       // everything but the layer's input
};
Recompute recompute_of(const config::ParallelConfig& parallel);

struct LayerProgram {
  ShardShape shape;
  Recompute recompute;

  std::vector<Op> layer_forward() const;
  // Backward of a layer is its recomputation (if any) and input gradients, then its weight gradients.
  std::vector<Op> layer_backward_input() const;
  std::vector<Op> layer_backward_weight() const;

  std::vector<Op> embedding_forward() const;
  std::vector<Op> embedding_backward() const;
  std::vector<Op> head_forward() const;  // final norm, output matrix, loss
  std::vector<Op> head_backward() const;

  // A whole chunk, in the order in which it runs.
  std::vector<Op> chunk_forward(const ChunkContent& content) const;
  std::vector<Op> chunk_backward(const ChunkContent& content) const;
};

// Bytes that one layer keeps per micro-batch between its forward and its backward, on one rank.
int64_t layer_activation_bytes(const ShardShape& shape, const Recompute& recompute);
// The same for a whole chunk: token ids at the embedding, logits and statistics at the head.
int64_t chunk_activation_bytes(const ShardShape& shape, const Recompute& recompute,
                               const ChunkContent& content);
// Bytes of the hidden state that crosses a pipeline border.
int64_t boundary_bytes(const ShardShape& shape);

}  // namespace lockstep::model
