#include "train/step_executor.hpp"

#include <array>
#include <cmath>

#include "base/error.hpp"
#include "train/initial_weights.hpp"
#include "train/wait_ignoring_errors.hpp"

namespace lockstep::train {

using Kind = parallel::ActionKind;

namespace {

size_t count_of(const at::Tensor& tensor) { return static_cast<size_t>(tensor.numel()); }
comm::DataType type_of(const at::Tensor& tensor) { return nn::data_type(tensor.scalar_type()); }

// Token ids [T] as a view of the batch's memory.
at::Tensor ids_view(std::vector<int64_t>& ids) {
  return at::from_blob(ids.data(), {static_cast<int64_t>(ids.size())}, at::kLong);
}

at::Tensor take_from(std::map<std::pair<int, int>, at::Tensor>& map, const parallel::Action& action) {
  auto node = map.extract({action.chunk, action.micro_batch});
  if (node.empty()) throw RunError("the program has " + parallel::describe(action) + " with nothing to send");
  return std::move(node.mapped());
}

}  // namespace

StepExecutor::StepExecutor(const parallel::Layout& layout, const Groups& groups, const nn::Context& context)
    : layout_(layout),
      groups_(groups),
      context_(context),
      messages_(groups.pp.get(), context, layout.micro_batches()) {
  const auto seed = static_cast<uint64_t>(layout.run().train.seed);
  for (int c = 0; c < layout.virtual_stages(); ++c) {
    Chunk chunk;
    chunk.model = std::make_unique<ModelChunk>(layout, groups.at.pp, c, context);
    const at::Tensor initial = initial_weights(chunk.model->flat(), seed, context.gradient_dtype);
    chunk.model->weights().copy_(initial);
    chunk.state = std::make_unique<ShardedState>(chunk.model->flat(), context, initial, groups.at.dp);
    // Alone on its axis, a worker's shard is the whole gradient.
    if (groups.dp == nullptr) chunk.state->gradient() = chunk.model->gradients();
    chunks_.push_back(std::move(chunk));
  }
}

StepExecutor::~StepExecutor() {
  for (PendingWork& pending : dp_work_) wait_ignoring_errors(pending.work);
}

StepSums StepExecutor::train_step(const parallel::Program& program,
                                  const std::function<data::StepBatch()>& load,
                                  const StepSettings& settings) {
  training_ = true;
  settings_ = settings;
  load_ = load;
  sums_ = {};
  for (Chunk& chunk : chunks_) chunk.model->gradients().zero_();
  for (const Action& action : program.actions) execute(action);
  wait_for_dp();
  messages_.finish_step();
  outputs_.clear();
  gradients_.clear();
  return sums_;
}

StepSums StepExecutor::evaluate(const parallel::Program& program, data::StepBatch batch) {
  training_ = false;
  sums_ = {};
  take_batch(std::move(batch));
  for (const Action& action : program.actions) execute(action);
  messages_.finish_step();
  return sums_;
}

void StepExecutor::execute(const Action& action) {
  if (context_.log != nullptr) context_.log->set_context(action.chunk, action.micro_batch);
  switch (action.kind) {
    case Kind::load_batch:
      return take_batch(load_());
    case Kind::receive_forward:
    case Kind::receive_backward:
      return messages_.post_receive(action);
    case Kind::forward:
      return forward(action);
    case Kind::send_forward:
      return messages_.send(action, take_from(outputs_, action));
    case Kind::backward:
      return backward(action);
    case Kind::send_backward:
      return messages_.send(action, take_from(gradients_, action));
    case Kind::reduce_gradients:
      return reduce_gradients(action);
    case Kind::gradient_norm:
      return gradient_norm();
    case Kind::optimizer_step:
      return optimizer_step(action);
    case Kind::gather_parameters:
      return gather_parameters(action);
    case Kind::evaluation_loss:
      return sum_over_all("loss_all_reduce");
  }
}

void StepExecutor::take_batch(data::StepBatch batch) {
  batch_ = std::move(batch);
  int64_t bytes = 0;
  for (data::MicroBatch& mb : batch_.micro_batches) {
    if (layout_.has_embedding(groups_.at.pp)) bytes += static_cast<int64_t>(ids_view(mb.inputs).nbytes());
    if (layout_.has_head(groups_.at.pp)) bytes += static_cast<int64_t>(ids_view(mb.targets).nbytes());
  }
  if (bytes > 0 && training_) nn::OpScope(context_.log, "load_batch", nn::Stream::host, bytes);
}

ForwardInput StepExecutor::input_of(const Action& action) {
  const model::ChunkContent& content = layout_.chunk(groups_.at.pp, action.chunk);
  ForwardInput input;
  if (content.embedding || content.head) {
    data::MicroBatch& mb = batch_.micro_batches.at(static_cast<size_t>(action.micro_batch));
    if (content.embedding) input.ids = ids_view(mb.inputs);
    if (content.head) input.targets = ids_view(mb.targets);
  }
  if (!content.embedding)
    input.hidden = messages_.take(Kind::receive_forward, action.chunk, action.micro_batch);
  return input;
}

void StepExecutor::forward(const Action& action) {
  const ForwardInput input = input_of(action);
  ModelChunk& model = *chunk(action).model;
  ForwardOutput output = training_ ? model.forward(action.micro_batch, input) : model.evaluate(input);
  if (output.hidden.defined()) outputs_[{action.chunk, action.micro_batch}] = std::move(output.hidden);
  // Every rank of tp has the same loss; the first one reports it.
  if (groups_.first_of_tp()) sums_.loss += output.loss;
}

void StepExecutor::backward(const Action& action) {
  at::Tensor dy;
  if (!layout_.chunk(groups_.at.pp, action.chunk).head) {
    dy = messages_.take(Kind::receive_backward, action.chunk, action.micro_batch);
  }
  at::Tensor dx = chunk(action).model->backward(action.micro_batch, std::move(dy), settings_.loss_scale);
  if (dx.defined()) gradients_[{action.chunk, action.micro_batch}] = std::move(dx);
}

void StepExecutor::reduce_gradients(const Action& action) {
  ModelChunk& model = *chunk(action).model;
  if (context_.shape.sequence_parallel && model.flat().replicated() > 0) {
    at::Tensor norms = model.gradients().narrow(0, 0, model.flat().replicated());
    nn::OpScope op(context_.log, "norm_gradient_all_reduce", nn::Stream::tp,
                   static_cast<int64_t>(norms.nbytes()));
    groups_.tp->all_reduce(norms.data_ptr(), count_of(norms), type_of(norms), comm::ReduceOp::sum,
                           {.name = "norm_gradient_all_reduce"});
  }
  if (groups_.dp == nullptr) return;
  const at::Tensor& whole = model.gradients();
  at::Tensor& shard = chunk(action).state->gradient();
  start_on_dp(
      "gradient_reduce_scatter", action.chunk, static_cast<int64_t>(whole.nbytes()),
      groups_.dp->reduce_scatter_async(whole.data_ptr(), shard.data_ptr(), count_of(shard), type_of(shard),
                                       comm::ReduceOp::sum, {.name = "gradient_reduce_scatter"}));
}

void StepExecutor::gradient_norm() {
  wait_for_dp();
  {
    nn::OpScope op(context_.log, "gradient_norm", {});
    for (Chunk& c : chunks_) {
      sums_.squared_norm += c.state->squared_norm();
      op.result(c.state->gradient());
    }
  }
  sum_over_all("norm_all_reduce");
}

// Over dp, then tp, then pp: the order is part of the result.
void StepExecutor::sum_over_all(const char* name) {
  std::array<double, 2> sums{sums_.squared_norm, sums_.loss};
  const std::array<std::pair<comm::Communicator*, nn::Stream>, 3> axes{{{groups_.dp.get(), nn::Stream::dp},
                                                                        {groups_.tp.get(), nn::Stream::tp},
                                                                        {groups_.pp.get(), nn::Stream::pp}}};
  for (const auto& [group, stream] : axes) {
    if (group == nullptr) continue;
    const auto sum = [&, g = group] {
      g->all_reduce(sums.data(), sums.size(), comm::DataType::f64, comm::ReduceOp::sum, {.name = name});
    };
    if (stream == nn::Stream::pp) {
      messages_.run_in_order(name, static_cast<int64_t>(sizeof sums), sum);
    } else {
      nn::OpScope op(context_.log, name, stream, static_cast<int64_t>(sizeof sums));
      sum();
    }
  }
  sums_ = {sums[0], sums[1]};
}

void StepExecutor::optimizer_step(const Action& action) {
  const config::TrainConfig& train = layout_.run().train;
  const double norm = std::sqrt(sums_.squared_norm);
  if (!std::isfinite(norm) || !std::isfinite(sums_.loss)) {
    throw RunError(
        "step " + std::to_string(settings_.step) +
        ": loss or gradient is not finite; the weights were left as they were. Try a smaller train.lr "
        "or a longer train.warmup.");
  }
  // As torch.nn.utils.clip_grad_norm_ scales.
  const bool clips = train.grad_clip > 0 && train.grad_clip < norm + 1e-6;
  const double scale = clips ? train.grad_clip / (norm + 1e-6) : 1.0;
  ModelChunk& model = *chunk(action).model;
  ShardedState& state = *chunk(action).state;
  at::Tensor weights = model.weights().narrow(0, state.begin(), state.size());
  nn::OpScope op(context_.log, "adamw", {state.gradient()});
  state.adamw(train, {settings_.lr, scale, settings_.step});
  weights.copy_(state.master());
  for (const at::Tensor& changed : {state.master(), state.moment1(), state.moment2()})
    op.accumulated(changed);
  op.result(weights);
}

void StepExecutor::gather_parameters(const Action& action) {
  if (groups_.dp == nullptr) return;
  at::Tensor& whole = chunk(action).model->weights();
  const ShardedState& state = *chunk(action).state;
  const at::Tensor own = whole.narrow(0, state.begin(), state.size());
  start_on_dp("parameter_all_gather", action.chunk, static_cast<int64_t>(whole.nbytes()),
              groups_.dp->all_gather_async(own.data_ptr(), whole.data_ptr(), count_of(own), type_of(own),
                                           {.name = "parameter_all_gather"}));
}

void StepExecutor::start_on_dp(const char* name, int chunk, int64_t bytes, comm::Work work) {
  const int64_t now = observe::monotonic_ns();
  dp_work_.push_back({std::move(work), {name, nn::Stream::dp, bytes, now, now, chunk, -1}});
}

void StepExecutor::wait_for_dp() {
  for (PendingWork& pending : dp_work_) {
    pending.work.wait();
    pending.record.end_ns = observe::monotonic_ns();
    if (context_.log != nullptr) context_.log->add(pending.record);
  }
  dp_work_.clear();
}

}  // namespace lockstep::train
