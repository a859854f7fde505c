// Memory of one GPU at each pipeline stage, in bytes, part by part. All ranks of a stage need the same.
#pragma once

#include <cstdint>
#include <vector>

#include "base/json_fwd.hpp"
#include "parallel/program.hpp"

namespace lockstep::plan {

struct StageMemory {
  int stage = 0;
  int64_t weights = 0;      // in the compute dtype, padded so that dp shards are equal
  int64_t gradients = 0;    // accumulated in fp32 (fp64 in fp64 runs), as long as the weights
  int64_t optimizer = 0;    // master weights and two moments of this rank's shard, in the gradients' dtype
  int64_t activations = 0;  // the most that forwards hold at once until their backwards
  // Other:
  int64_t messages = 0;   // hidden states and gradients that have come and wait, or wait to be sent
  int64_t shard = 0;      // reduced gradients of this rank's shard, all chunks until the norm is known
  int64_t workspace = 0;  // tensors that live only inside one pass: see workspace_bytes
  int64_t margin = 0;     // margin_share of all above: allocator fragmentation, context, libraries' buffers

  int64_t other() const { return messages + shard + workspace + margin; }
  int64_t total() const { return weights + gradients + optimizer + activations + other(); }
};

// Not derived: what an allocator loses and libraries take, as a share of the rest.
inline constexpr double margin_share = 0.05;

struct MemoryReport {
  std::vector<StageMemory> stages;
  int64_t capacity = 0;  // of one GPU

  const StageMemory& fullest() const;
  bool fits() const { return fullest().total() <= capacity; }
};

// `programs`: one a stage, of `layout`. The activations are followed action by action.
MemoryReport memory_of(const parallel::Layout& layout, const std::vector<parallel::Program>& programs);

// The largest of what a stage's passes need while they run: in a layer's backward two full hidden states
// (gathered input and output gradient), gradients of gate and up, the down product's input and its gradient,
// and with full recomputation the layer's activations; at the head the gradient of the logits and two full
// hidden states.
int64_t workspace_bytes(const parallel::Layout& layout, int stage);

// Bytes of the whole training state, over all GPUs.
struct TrainingState {
  double published = 0;  // 2 + 2 + 12 a parameter: bf16 weights and gradients, fp32 master and two moments
  double own = 0;        // what the trainer holds: gradients in fp32, 2 + 4 + 12 in bf16 runs
};
TrainingState training_state(double parameters, config::Dtype dtype);

// JSON block `memory`: the fullest rank's parts, and the total of every stage.
Json memory_json(const MemoryReport& report);

}  // namespace lockstep::plan
