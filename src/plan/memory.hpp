// Memory of one GPU at each pipeline stage, in bytes, part by part, at the moment at which the stage holds
// most. The step program is walked action by action, and inside a pass tensor by tensor (plan/pass_memory);
// all ranks of a stage hold the same.
#pragma once

#include <cstdint>
#include <vector>

#include "base/json_fwd.hpp"
#include "parallel/program.hpp"

namespace lockstep::plan {

struct StageMemory {
  int stage = 0;
  // In the compute dtype, padded so that shards are equal: whole chunks; with zero = 3 this rank's shards.
  int64_t weights = 0;
  int64_t gathered = 0;  // zero = 3: the whole chunks that are there at the moment
  // Unreduced, of whole chunks, in software.gradient_dtype: through the step, or (zero = 2, 3, or several
  // rounds of replicas) from a chunk's backward to the end of its reduction.
  int64_t gradients = 0;
  int64_t optimizer = 0;  // master weights and moments of what this rank updates, fp32 (fp64)
  // Held between forwards and backwards (parallel::LiveActivations): of the layers and the embedding, and of
  // the head: logits, targets, the loss' statistics, its norm's and its product's input.
  int64_t activations = 0;
  int64_t logits = 0;
  // Other:
  int64_t messages = 0;   // hidden states and gradients that have come and wait, or wait to be sent
  int64_t reduced = 0;    // reduced gradients of what this rank updates; 0 where they lie in `gradients`
  int64_t workspace = 0;  // tensors that live only inside the pass under way; norms' gradients between halves
  int64_t tables = 0;     // rotary angles, the tokens' places
  int64_t stand_ins = 0;  // of weight gradients, for autograd: software.fused_weight_gradients
  int64_t margin = 0;     // software.memory_margin of all above: not derived

  int64_t other() const { return messages + reduced + workspace + tables + stand_ins + margin; }
  int64_t total() const {
    return weights + gathered + gradients + optimizer + activations + logits + other();
  }
  int64_t tensors() const { return total() - margin; }  // what the trainer's tensors take
  bool operator==(const StageMemory&) const = default;
};

// Of rotary angles (llama's), and the tokens' places of the pass under way and of each micro-batch.
int64_t table_bytes(const config::RunFile& run, const model::ShardShape& shape, int64_t micro_batches);

// Of software.fused_weight_gradients' stand-ins: a layer's matrices, once each, for all layers share what
// nobody reads.
int64_t stand_in_bytes(const config::RunFile& run, const model::ShardShape& shape);

struct MemoryReport {
  std::vector<StageMemory> stages;
  int64_t capacity = 0;  // of one GPU
  int64_t moments = 0;   // of the optimizer, beside the master weight
  // Gradients that zero 2 or 3 will shard are whole until the last micro-batch (gradient_scatter = "chunk").
  bool whole_gradients = false;

  const StageMemory& fullest() const;
  bool fits() const { return fullest().total() <= capacity; }
};

// `programs`: one a stage, of `layout`.
MemoryReport memory_of(const parallel::Layout& layout, const std::vector<parallel::Program>& programs);

// What a stage holds after each of its passes, in the order of its program.
struct MemoryMoment {
  parallel::Action pass;
  int64_t activations = 0;  // logits included
  int64_t tensors = 0;      // everything but the margin
};
std::vector<MemoryMoment> memory_curve(const parallel::Layout& layout, const parallel::Program& program);

// Bytes of the whole training state, over all GPUs.
struct TrainingState {
  double published = 0;  // 2 + 2 + 12 a parameter: bf16 weights and gradients, fp32 master and two moments
  double own = 0;        // what the trainer holds: gradients in fp32, with AdamW 2 + 4 + 12 in bf16 runs
};
TrainingState training_state(double parameters, const config::TrainConfig& train);

// JSON block `memory`: the fullest rank's parts, and those of every stage.
Json memory_json(const MemoryReport& report);
// JSON block `memory_curve`: of the fullest stage.
Json curve_json(const std::vector<MemoryMoment>& curve);

}  // namespace lockstep::plan
