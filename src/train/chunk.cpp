#include "train/chunk.hpp"

#include <algorithm>

#include "nn/layer_kernels.hpp"
#include "train/initial_weights.hpp"

namespace lockstep::train {

using Use = AsyncCollectives::Use;

namespace {

size_t count_of(const at::Tensor& tensor) { return static_cast<size_t>(tensor.numel()); }
comm::DataType type_of(const at::Tensor& tensor) { return nn::data_type(tensor.scalar_type()); }

at::Tensor initial_of(const ChunkContext& context, const FlatLayout& flat) {
  return initial_weights(flat, static_cast<uint64_t>(context.layout.run().train.seed),
                         context.nn.gradient_dtype);
}

}  // namespace

Chunk::Chunk(const ChunkContext& context, int chunk)
    : context_(context),
      chunk_(chunk),
      model_(context.layout, context.groups.at.pp, chunk, context.nn),
      weights_(initial_of(context, model_.flat())),
      state_(model_.flat(), context.layout.run().train, weights_, context.groups.shard_rank(),
             context.layout.zero()) {
  if (!keeps_whole_weights()) {
    weights_ = state_.master().to(context.nn.dtype, /*non_blocking=*/false, /*copy=*/true);
    return;
  }
  weights_ = weights_.to(context.nn.dtype);
  model_.set_weights(weights_);
}

void Chunk::unshard() {
  if (keeps_whole_weights()) return;
  if (context_.nn.log != nullptr && context_.nn.log->checking()) check_own_weights();
  const at::Tensor whole = at::zeros({model_.flat().padded()}, weights_.options());
  for (size_t i = 0; i < state_.ranges().size(); ++i) {
    const FlatSegment& segment = model_.flat().segments()[i];
    const OwnedRange& range = state_.ranges()[i];
    const at::Tensor own = weights_.narrow(0, range.own, range.size);
    const at::Tensor all = whole.narrow(0, segment.offset, segment.sizes.padded());
    context_.collectives.start(
        Use::unshard, "parameter_all_gather", chunk_, static_cast<int64_t>(all.nbytes()),
        context_.groups.dp_cp->all_gather_async(own.data_ptr(), all.data_ptr(), count_of(own), type_of(own),
                                                {.name = "parameter_all_gather"}),
        {whole, own});
  }
  model_.set_weights(whole);
}

// All ranks receive what one of them holds: that one is to be named, and the layer whose weights they are.
void Chunk::check_own_weights() const {
  nn::OpLog& log = *context_.nn.log;
  for (const OwnedRange& range : state_.ranges()) {
    for (const FlatEntry& entry : model_.flat().entries()) {
      const int64_t first = std::max(range.flat, entry.offset);
      const int64_t last = std::min(range.flat + range.size, entry.offset + entry.count);
      if (first >= last) continue;
      log.set_layer(static_cast<int>(entry.parameter.layer));
      nn::OpScope(&log, "parameter_shard", {})
          .check(weights_.narrow(0, first - range.flat + range.own, last - first));
    }
  }
  log.set_layer(-1);
}

void Chunk::wait_for_parameters() { context_.collectives.wait(Use::unshard, chunk_); }

void Chunk::reshard() {
  if (!keeps_whole_weights()) model_.set_weights({});
}

void Chunk::begin_step() {
  if (!context_.layout.gradients_persist()) {
    model_.set_gradients({});
  } else if (model_.gradients().defined()) {
    model_.gradients().zero_();
  }
  if (context_.layout.reduces_in_place()) {
    state_.drop_gradient();
  } else if (context_.layout.accumulates_reductions()) {
    state_.gradient().zero_();
  }
}

void Chunk::need_gradients() {
  if (model_.gradients().defined()) return;
  model_.set_gradients(at::zeros({model_.flat().padded()}, at::TensorOptions(context_.nn.gradient_dtype)));
}

void Chunk::reduce_gradients(int contributors) {
  need_gradients();  // of a chunk without parameters
  // Where a reduction ends its buffer's life one is under way at most.
  if (!context_.layout.gradients_persist()) context_.collectives.wait(Use::reduction);
  all_reduce_norms();
  all_reduce_kv();
  if (context_.layout.reduces_in_place()) state_.set_gradient(model_.gradients());
  reduce_segments(contributors);
  if (!context_.layout.gradients_persist()) model_.set_gradients({});
}

// With sequence parallel each rank saw only its tokens, so replicated weights have partial gradients.
void Chunk::all_reduce_norms() {
  if (!context_.nn.shape.sequence_parallel || model_.flat().replicated() == 0) return;
  const at::Tensor norms = model_.gradients().narrow(0, 0, model_.flat().replicated());
  nn::OpScope op(context_.nn.log, "norm_gradient_all_reduce", nn::Stream::tp,
                 static_cast<int64_t>(norms.nbytes()));
  context_.groups.tp->all_reduce(norms.data_ptr(), count_of(norms), type_of(norms), comm::ReduceOp::sum,
                                 {.name = "norm_gradient_all_reduce"});
  op.check(norms);
}

// Each copy of a key and value head served other query heads. They lie between other gradients: packed into
// one message.
void Chunk::all_reduce_kv() {
  if (context_.groups.tp_kv == nullptr) return;
  std::vector<at::Tensor> parts;
  for (const FlatEntry& entry : model_.flat().entries()) {
    if (!entry.parameter.is_kv()) continue;
    parts.push_back(model_.gradients().narrow(0, entry.offset, entry.count));
  }
  if (parts.empty()) return;
  const at::Tensor packed = at::cat(parts);
  nn::OpScope op(context_.nn.log, "kv_gradient_all_reduce", nn::Stream::tp,
                 static_cast<int64_t>(packed.nbytes()));
  context_.groups.tp_kv->all_reduce(packed.data_ptr(), count_of(packed), type_of(packed), comm::ReduceOp::sum,
                                    {.name = "kv_gradient_all_reduce"});
  op.check(packed);
  int64_t at = 0;
  for (at::Tensor& part : parts) {
    part.copy_(packed.narrow(0, at, part.numel()));
    at += part.numel();
  }
}

void Chunk::reduce_segments(int contributors) {
  const bool accumulates = context_.layout.accumulates_reductions();
  const at::Tensor& whole = model_.gradients();
  for (size_t i = 0; i < state_.ranges().size(); ++i) {
    const FlatSegment& segment = model_.flat().segments()[i];
    const OwnedRange& range = state_.ranges()[i];
    const at::Tensor input = whole.narrow(0, segment.offset, segment.sizes.padded());
    if (!is_sharded()) {
      if (!accumulates) continue;
      nn::OpScope op(context_.nn.log, "gradient_accumulate", {input});
      at::Tensor total = state_.gradient().narrow(0, range.own, range.size);
      total.add_(input);
      op.accumulated(total);
      continue;
    }
    const at::Tensor own =
        state_.gradient().narrow(0, range.own + range.shard_flat - range.flat, range.shard_size);
    comm::OpOptions options{.name = "gradient_reduce_scatter"};
    options.accumulate = accumulates;
    options.contributors = contributors;
    context_.collectives.start(
        Use::reduction, "gradient_reduce_scatter", chunk_, static_cast<int64_t>(input.nbytes()),
        context_.groups.dp_cp->reduce_scatter_async(input.data_ptr(), own.data_ptr(), count_of(own),
                                                    type_of(own), comm::ReduceOp::sum, options),
        {whole, own});
  }
}

void Chunk::gather_gradients() {
  if (!is_sharded()) return;
  for (size_t i = 0; i < state_.ranges().size(); ++i) {
    const OwnedRange& range = state_.ranges()[i];
    const at::Tensor all = state_.gradient().narrow(0, range.own, range.size);
    const at::Tensor own = all.narrow(0, range.shard_flat - range.flat, range.shard_size);
    context_.collectives.start(
        Use::reduction, "gradient_all_gather", chunk_, static_cast<int64_t>(all.nbytes()),
        context_.groups.dp_cp->all_gather_async(own.data_ptr(), all.data_ptr(), count_of(own), type_of(own),
                                                {.name = "gradient_all_gather"}),
        {all});
  }
}

at::Tensor Chunk::tied_gradient() {
  const OwnedRange& range = state_.ranges().back();
  return state_.gradient().narrow(0, range.own, range.size);
}

void Chunk::gather_parameters() {
  if (!is_sharded()) return;
  for (size_t i = 0; i < state_.ranges().size(); ++i) {
    const FlatSegment& segment = model_.flat().segments()[i];
    const OwnedRange& range = state_.ranges()[i];
    const at::Tensor all = weights_.narrow(0, segment.offset, segment.sizes.padded());
    const at::Tensor own = weights_.narrow(0, range.flat, range.size);
    context_.collectives.start(
        Use::gather, "parameter_all_gather", chunk_, static_cast<int64_t>(all.nbytes()),
        context_.groups.dp_cp->all_gather_async(own.data_ptr(), all.data_ptr(), count_of(own), type_of(own),
                                                {.name = "parameter_all_gather"}),
        {weights_});
  }
}

void Chunk::update(const OptimizerStep& step) {
  const config::Optimizer kind = context_.layout.run().train.optimizer;
  nn::OpScope op(context_.nn.log, config::to_string(kind), {state_.gradient()});
  state_.update(step);
  for (const OwnedRange& range : state_.ranges()) {
    const at::Tensor changed = state_.master().narrow(0, range.own, range.size);
    at::Tensor weights = keeps_whole_weights() ? weights_.narrow(0, range.flat, range.size)
                                               : weights_.narrow(0, range.own, range.size);
    weights.copy_(changed);
    op.result(weights);
  }
  op.accumulated(state_.master());
  for (const at::Tensor& moment : state_.moments()) op.accumulated(moment);
}

}  // namespace lockstep::train
