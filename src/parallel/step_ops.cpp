#include "parallel/step_ops.hpp"

#include "config/optimizer_state.hpp"

namespace lockstep::parallel {

namespace {

using model::OpKind;
using model::Stream;

Stream stream_of(Axis axis) {
  switch (axis) {
    case Axis::tp:
    case Axis::tp_kv:
      return Stream::tp;
    case Axis::cp:
      return Stream::cp;
    case Axis::pp:
    case Axis::pp_ends:
      return Stream::pp;
    case Axis::dp:
    case Axis::dp_cp:
      return Stream::dp;
    case Axis::none:
      break;
  }
  return Stream::compute;
}

}  // namespace

void StepOps::collective(const char* name, OpKind kind, Axis axis, int64_t bytes) {
  if (layout_.mesh().size(axis) > 1 && bytes > 0) {
    ops_.push_back({name, kind, axis, stream_of(axis), bytes, 0, 0, 0, 0});
  }
}

void StepOps::memory(const char* name, int64_t bytes) {
  ops_.push_back({name, OpKind::memory, Axis::none, Stream::compute, bytes, 0, 0, 0, 0});
}

void StepOps::message(const char* name, OpKind kind) {
  ops_.push_back({name, kind, Axis::pp, Stream::pp, model::boundary_bytes(s_), 0, 0, 0, 0});
}

void StepOps::load_batch() {
  // Every stage needs to know where documents begin.
  const int64_t ids = (layout_.has_embedding(stage_) ? 1 : 0) + (layout_.has_head(stage_) ? 1 : 0) +
                      (layout_.run().data.document_mask ? 1 : 0);
  if (ids == 0) return;
  const int64_t bytes = ids * layout_.micro_batches() * s_.tokens * 8;
  ops_.push_back({"load_batch", OpKind::host, Axis::none, Stream::host, bytes, 0, 0, 0, 0});
}

void StepOps::gather_parameters(int chunk) {
  for (const Segment& segment : layout_.segments(stage_, chunk)) {
    collective("parameter_all_gather", OpKind::all_gather, Axis::dp_cp, segment.padded() * s_.element_bytes);
  }
}

void StepOps::reduce_gradients(int chunk) {
  const config::ModelConfig& model = layout_.run().model;
  const model::ChunkContent& content = layout_.chunk(stage_, chunk);
  // With sequence parallel each rank saw only its tokens, so replicated weights have partial gradients.
  if (s_.sequence_parallel) {
    collective("norm_gradient_all_reduce", OpKind::all_reduce, Axis::tp,
               model::replicated_parameter_count(model, content) * s_.gradient_bytes);
  }
  // Each copy of a key and value head served other query heads.
  collective("kv_gradient_all_reduce", OpKind::all_reduce, Axis::tp_kv,
             model::kv_parameter_count(model, content, s_.tp) * s_.gradient_bytes);
  for (const Segment& segment : layout_.segments(stage_, chunk)) {
    const int64_t bytes = segment.padded() * s_.gradient_bytes;
    collective("gradient_reduce_scatter", OpKind::reduce_scatter, Axis::dp_cp, bytes);
    if (segment.ranks == 1 && layout_.accumulates_reductions()) memory("gradient_accumulate", 3 * bytes);
  }
}

void StepOps::gather_gradients(int chunk) {
  for (const Segment& segment : layout_.segments(stage_, chunk)) {
    collective("gradient_all_gather", OpKind::all_gather, Axis::dp_cp, segment.padded() * s_.gradient_bytes);
  }
}

void StepOps::sum_tied_gradients(int chunk) {
  const Segment segment = layout_.segments(stage_, chunk).back();
  const int64_t elements = layout_.zero() == 0 ? segment.padded() : segment.shard;
  collective("tied_gradient_all_reduce", OpKind::all_reduce, Axis::pp_ends, elements * s_.gradient_bytes);
}

void StepOps::gradient_norm() {
  int64_t elements = 0;
  for (int c = 0; c < layout_.virtual_stages(); ++c) elements += layout_.state_elements(stage_, c);
  memory("gradient_norm", elements * s_.gradient_bytes);
  collective("norm_all_reduce", OpKind::all_reduce, Axis::dp_cp, norm_numbers(layout_, stage_) * 8);
  collective("norm_all_reduce", OpKind::all_reduce, Axis::tp, total_numbers * 8);
  collective("norm_all_reduce", OpKind::all_reduce, Axis::pp, total_numbers * 8);
}

// Reads the gradient, reads and writes the master weight and the moments, writes the compute weight.
void StepOps::optimizer_step(int chunk) {
  const config::TrainConfig& train = layout_.run().train;
  const int64_t changed = 1 + config::optimizer_moments(train);
  const int64_t each = s_.gradient_bytes + 2 * changed * s_.state_bytes + s_.element_bytes;
  memory(config::to_string(train.optimizer), layout_.state_elements(stage_, chunk) * each);
}

void StepOps::evaluation_loss() {
  for (const Axis axis : {Axis::dp_cp, Axis::tp, Axis::pp}) {
    collective("loss_all_reduce", OpKind::all_reduce, axis, total_numbers * 8);
  }
}

int64_t norm_numbers(const Layout& layout, int stage) {
  int64_t blocks = 0;
  for (int c = 0; layout.zero() > 0 && c < layout.virtual_stages(); ++c) {
    for (const Segment& segment : layout.segments(stage, c)) blocks += segment.blocks();
  }
  const config::ParallelConfig& p = layout.run().parallel;
  return 1 + p.logical_replicas() * p.cp + blocks;
}

}  // namespace lockstep::parallel
