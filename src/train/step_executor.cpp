#include "train/step_executor.hpp"

#include <algorithm>
#include <cmath>

#include "base/error.hpp"
#include "config/replicas.hpp"

namespace lockstep::train {

using Kind = parallel::ActionKind;
using Use = AsyncCollectives::Use;

namespace {

// Token ids [T] as a view of the batch's memory.
at::Tensor ids_view(std::vector<int64_t>& ids) {
  return at::from_blob(ids.data(), {static_cast<int64_t>(ids.size())}, at::kLong);
}

at::Tensor take_from(std::map<std::pair<int, int>, at::Tensor>& map, int chunk, int micro_batch,
                     const parallel::Action& action) {
  auto node = map.extract({chunk, micro_batch});
  if (node.empty()) throw RunError("the program has " + parallel::describe(action) + " before what it needs");
  return std::move(node.mapped());
}

int64_t blocked(const std::unique_ptr<comm::Communicator>& group) {
  return group == nullptr ? 0 : group->blocked_ns();
}

}  // namespace

StepExecutor::StepExecutor(const parallel::Layout& layout, const Groups& groups, const nn::Context& context)
    : layout_(&layout),
      groups_(groups),
      context_(context),
      meter_(context.log),
      collectives_(context, meter_),
      chunk_context_{layout, groups, context, collectives_},
      messages_(groups.pp.get(), context, meter_, layout.micro_batches()) {
  for (int c = 0; c < layout.virtual_stages(); ++c) {
    chunks_.push_back(std::make_unique<Chunk>(chunk_context_, c));
  }
}

StepOutcome StepExecutor::train_step(const parallel::Layout& layout, const parallel::Program& program,
                                     const std::function<data::StepBatch()>& load,
                                     const StepSettings& settings) {
  training_ = true;
  settings_ = settings;
  load_ = load;
  begin_step(layout);
  StepOutcome outcome;
  for (const Action& action : program.actions) {
    execute(action);
    if (action.kind != Kind::gradient_norm) continue;
    if (sums_.tokens <= 0) {
      throw RunError(
          "every target of this step's batch is masked: its sequences hold nothing to learn. Try a larger "
          "train.sequence or longer documents.");
    }
    if (std::isfinite(sums_.squared_norm) && std::isfinite(sums_.loss)) continue;
    finish_step();
    outcome.trouble = find_non_finite(program);
    break;
  }
  if (!outcome.trouble) finish_step();
  outcome.sums = sums_;
  outcome.waits = meter_.waits();
  outcome.peak_activation_bytes = peak_activation_bytes_;
  return outcome;
}

void StepExecutor::begin_step(const parallel::Layout& layout) {
  layout_ = &layout;
  sums_ = {};
  peak_activation_bytes_ = 0;
  norm_ = std::make_unique<NormSums>(layout, groups_);
  meter_.begin_step();
  count_blocked_time(true);
  for (auto& chunk : chunks_) chunk->begin_step();
}

void StepExecutor::finish_step() {
  collectives_.finish_step();
  messages_.finish_step();
  outputs_.clear();
  gradients_.clear();
  count_blocked_time(false);
}

// Collectives of tp and cp block: all their time is exposed.
void StepExecutor::count_blocked_time(bool begin) {
  const int64_t tp = blocked(groups_.tp) + blocked(groups_.tp_kv), cp = blocked(groups_.cp);
  if (begin) {
    tp_blocked_ = tp;
    cp_blocked_ = cp;
    return;
  }
  observe::StepWaits& waits = meter_.waits();
  waits.exposed.tp = waits.under_way.tp = WaitMeter::seconds(tp - tp_blocked_);
  waits.exposed.cp = waits.under_way.cp = WaitMeter::seconds(cp - cp_blocked_);
}

StepSums StepExecutor::evaluate(const parallel::Program& program, data::StepBatch batch) {
  training_ = false;
  sums_ = {};
  take_batch(std::move(batch));
  for (const Action& action : program.actions) execute(action);
  finish_step();
  return sums_;
}

void StepExecutor::execute(const Action& action) {
  if (context_.log != nullptr) context_.log->set_context(action.chunk, action.micro_batch);
  run(action);
  if (is_pass(action.kind))
    peak_activation_bytes_ = std::max(peak_activation_bytes_, live_activation_bytes());
}

void StepExecutor::run(const Action& action) {
  switch (action.kind) {
    case Kind::load_batch:
      return take_batch(load_());
    case Kind::unshard:
      return chunk(action).unshard();
    case Kind::reshard:
      return chunk(action).reshard();
    case Kind::receive_forward:
    case Kind::receive_backward:
      return messages_.post_receive(action);
    case Kind::forward:
      return forward(action);
    case Kind::send_forward:
      return messages_.send(action, take_from(outputs_, action.chunk, action.micro_batch, action));
    case Kind::backward:
    case Kind::backward_input:
    case Kind::backward_weight:
      return backward(action);
    case Kind::send_backward:
      return messages_.send(action, take_from(gradients_, action.chunk, action.micro_batch, action));
    case Kind::reduce_gradients:
      return reduce_gradients(action);
    case Kind::gather_gradients:
      collectives_.wait(Use::reduction, action.chunk);
      return chunk(action).gather_gradients();
    case Kind::sum_tied_gradients:
      return sum_tied_gradients(action);
    case Kind::gradient_norm:
      return gradient_norm();
    case Kind::optimizer_step:
      return optimizer_step(action);
    case Kind::gather_parameters:
      return chunk(action).gather_parameters();
    case Kind::evaluation_loss:
      return evaluation_loss();
  }
}

void StepExecutor::take_batch(data::StepBatch batch) {
  batch_ = std::move(batch);
  places_.clear();
  int64_t bytes = 0;
  const auto count = [&](std::vector<int64_t>& ids) {
    bytes += static_cast<int64_t>(ids_view(ids).nbytes());
  };
  for (data::MicroBatch& mb : batch_.micro_batches) {
    if (layout_->has_embedding(groups_.at.pp)) count(mb.inputs);
    if (layout_->has_head(groups_.at.pp)) count(mb.targets);
    if (mb.document_starts.empty()) continue;
    count(mb.document_starts);
    places_.push_back(nn::token_places(context_, ids_view(mb.document_starts)));
  }
  // Every worker of a replica has its batch; the one whose loss counts adds its tokens.
  const bool counts = layout_->has_head(groups_.at.pp) && groups_.first_of_tp();
  if (!training_) {
    sums_.tokens = counts ? static_cast<double>(batch_.trained_tokens) : 0.0;
    return;
  }
  if (counts) norm_->add_tokens(batch_.trained_tokens);
  if (bytes > 0) nn::OpScope(context_.log, "load_batch", nn::Stream::host, bytes);
}

ForwardInput StepExecutor::input_of(const Action& action) {
  const model::ChunkContent& content = layout_->chunk(groups_.at.pp, action.chunk);
  const auto at = static_cast<size_t>(action.micro_batch);
  ForwardInput input;
  input.places = places_.empty() ? context_.places : places_.at(at);
  if (content.embedding) input.ids = ids_view(batch_.micro_batches.at(at).inputs);
  if (content.head) input.targets = ids_view(batch_.micro_batches.at(at).targets);
  if (content.embedding) return input;
  // A lone stage hands its chunks' outputs on.
  input.hidden = layout_->stages() == 1
                     ? take_from(outputs_, action.chunk - 1, action.micro_batch, action)
                     : messages_.take(Kind::receive_forward, action.chunk, action.micro_batch);
  return input;
}

void StepExecutor::forward(const Action& action) {
  const ForwardInput input = input_of(action);
  chunk(action).wait_for_parameters();
  ModelChunk& model = chunk(action).model();
  ForwardOutput output = training_ ? model.forward(action.micro_batch, input) : model.evaluate(input);
  if (output.hidden.defined()) outputs_[{action.chunk, action.micro_batch}] = std::move(output.hidden);
  // Every rank of tp has the same loss; the first one reports it.
  if (!groups_.first_of_tp() || !layout_->chunk(groups_.at.pp, action.chunk).head) return;
  if (!training_) {
    sums_.loss += output.loss;
    return;
  }
  const config::ParallelConfig& p = layout_->run().parallel;
  const auto place = config::local_micro_batch(p, layout_->replica_micro_batches(), action.micro_batch);
  const int64_t replica = config::replica_of(p, groups_.at.dp, place.round);
  if (replica < p.logical_replicas()) norm_->add_loss(replica, output.loss);
}

at::Tensor StepExecutor::gradient_of_output(const Action& action) {
  if (layout_->chunk(groups_.at.pp, action.chunk).head) return {};
  if (layout_->stages() == 1) return take_from(gradients_, action.chunk + 1, action.micro_batch, action);
  return messages_.take(Kind::receive_backward, action.chunk, action.micro_batch);
}

void StepExecutor::backward(const Action& action) {
  ModelChunk& model = chunk(action).model();
  chunk(action).wait_for_parameters();
  if (action.kind != Kind::backward_input) chunk(action).need_gradients();
  if (action.kind == Kind::backward_weight) return model.backward_weight(action.micro_batch);
  at::Tensor dy = gradient_of_output(action);
  at::Tensor dx = action.kind == Kind::backward ? model.backward(action.micro_batch, std::move(dy))
                                                : model.backward_input(action.micro_batch, std::move(dy));
  if (dx.defined()) gradients_[{action.chunk, action.micro_batch}] = std::move(dx);
}

int64_t StepExecutor::live_activation_bytes() const {
  int64_t bytes = 0;
  for (const auto& chunk : chunks_) bytes += chunk->model().live_bytes();
  return bytes;
}

void StepExecutor::reduce_gradients(const Action& action) {
  const config::ParallelConfig& p = layout_->run().parallel;
  const auto place = config::local_micro_batch(p, layout_->replica_micro_batches(), action.micro_batch);
  chunk(action).reduce_gradients(config::contributors(p, place.round) * static_cast<int>(p.cp));
}

void StepExecutor::sum_tied_gradients(const Action& action) {
  collectives_.wait(Use::reduction);
  if (groups_.pp_ends == nullptr) return;
  const at::Tensor gradient = chunk(action).tied_gradient();
  messages_.run_in_order("tied_gradient_all_reduce", static_cast<int64_t>(gradient.nbytes()), [&] {
    groups_.pp_ends->all_reduce(gradient.data_ptr(), static_cast<size_t>(gradient.numel()),
                                nn::data_type(gradient.scalar_type()), comm::ReduceOp::sum,
                                {.name = "tied_gradient_all_reduce"});
  });
}

void StepExecutor::gradient_norm() {
  collectives_.wait(Use::reduction);
  {
    nn::OpScope op(context_.log, "gradient_norm", {});
    for (size_t c = 0; c < chunks_.size(); ++c) {
      norm_->add_squares(static_cast<int>(c), *chunks_[c]);
      op.result(chunks_[c]->state().gradient());
    }
  }
  norm_->numbers() = sum_over("norm_all_reduce", std::move(norm_->numbers()), true);
  const std::vector<double> totals = sum_over("norm_all_reduce", norm_->totals(), false);
  sums_ = {totals[0], totals[1], totals[2]};
}

void StepExecutor::evaluation_loss() {
  std::vector<double> totals{0, sums_.loss, sums_.tokens};
  totals = sum_over("loss_all_reduce", std::move(totals), true);
  totals = sum_over("loss_all_reduce", std::move(totals), false);
  sums_ = {totals[0], totals[1], totals[2]};
}

// Over the ranks that share parameters, or over tp and then pp: the order is part of the result.
std::vector<double> StepExecutor::sum_over(const char* name, std::vector<double> numbers, bool over_dp) {
  const auto bytes = static_cast<int64_t>(numbers.size() * sizeof(double));
  const auto sum = [&](const std::unique_ptr<comm::Communicator>& group) {
    group->all_reduce(numbers.data(), numbers.size(), comm::DataType::f64, comm::ReduceOp::sum,
                      {.name = name});
  };
  if (over_dp) {
    if (groups_.dp_cp != nullptr) collectives_.run_in_order(name, bytes, [&] { sum(groups_.dp_cp); });
    return numbers;
  }
  if (groups_.tp != nullptr) {
    nn::OpScope op(context_.log, name, nn::Stream::tp, bytes);
    sum(groups_.tp);
  }
  if (groups_.pp != nullptr) messages_.run_in_order(name, bytes, [&] { sum(groups_.pp); });
  return numbers;
}

// The gradient of the mean over the trained tokens, scaled as torch.nn.utils.clip_grad_norm_ scales.
void StepExecutor::optimizer_step(const Action& action) {
  const double clip = layout_->run().train.grad_clip;
  const double mean = 1.0 / sums_.tokens;
  const double norm = std::sqrt(sums_.squared_norm) * mean;
  const bool clips = clip > 0 && clip < norm + 1e-6;
  const double scale = clips ? clip / (norm + 1e-6) * mean : mean;
  chunk(action).update({settings_.lr, scale, settings_.update});
}

// Runs the step again, up to the norm, on the same weights and batch, looking at every result: all workers
// do, since each needs the others. Nothing of the first run is left but its batch.
std::string StepExecutor::find_non_finite(const parallel::Program& program) {
  const StepSums found = sums_;
  const observe::StepWaits waits = meter_.waits();
  data::StepBatch again = std::move(batch_);
  load_ = [&] { return std::move(again); };
  nn::OpLog* log = context_.log;
  const bool recording = log->recording();
  log->set_recording(false);
  log->set_checking(true);
  begin_step(*layout_);
  std::optional<NonFiniteOrigin> origin;
  for (const Action& action : program.actions) {
    if (action.kind == Kind::gradient_norm) break;
    execute(action);
    if (!origin && log->first_non_finite()) origin = {*log->first_non_finite(), action.kind};
  }
  finish_step();
  if (!origin && log->first_non_finite()) origin = {*log->first_non_finite(), Kind::reduce_gradients};
  log->set_checking(false);
  log->set_recording(recording);
  std::string text = first_non_finite(*layout_, groups_, origin ? &*origin : nullptr);
  sums_ = found;
  meter_.waits() = waits;
  return text.empty()
             ? "in no op when the step was run again on the same weights and batch: a fault that does "
               "not repeat, such as a failing memory or processor"
             : text;
}

}  // namespace lockstep::train
