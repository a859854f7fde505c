#include "parallel/program.hpp"

#include <algorithm>

#include "parallel/message_order.hpp"

namespace lockstep::parallel {

namespace {

using Kind = ActionKind;

std::vector<int> last_backwards(const std::vector<Action>& passes, int virtual_stages) {
  std::vector<int> last(static_cast<size_t>(virtual_stages), -1);
  for (size_t i = 0; i < passes.size(); ++i) {
    if (passes[i].kind == Kind::backward) last[static_cast<size_t>(passes[i].chunk)] = static_cast<int>(i);
  }
  return last;
}

// A chunk's gradients are reduced right after its last backward; then norm, optimizer and gather.
Program finish_step(const Layout& layout, int stage, const std::vector<Action>& passes) {
  Program program{stage, {{Kind::load_batch}}};
  const std::vector<int> last = last_backwards(passes, layout.virtual_stages());
  for (size_t i = 0; i < passes.size(); ++i) {
    program.actions.push_back(passes[i]);
    if (passes[i].kind == Kind::backward &&
        last[static_cast<size_t>(passes[i].chunk)] == static_cast<int>(i)) {
      program.actions.push_back({Kind::reduce_gradients, passes[i].chunk});
    }
  }
  program.actions.push_back({Kind::gradient_norm});
  for (int chunk = 0; chunk < layout.virtual_stages(); ++chunk) {
    program.actions.push_back({Kind::optimizer_step, chunk});
    program.actions.push_back({Kind::gather_parameters, chunk});
  }
  return program;
}

// Collects the ops that lie outside the layer program.
class StepOps {
 public:
  explicit StepOps(const Layout& layout) : layout_(layout), s_(layout.shape()) {}

  void collective(const char* name, model::OpKind kind, Axis axis, model::Stream stream, int64_t bytes) {
    if (layout_.mesh().size(axis) > 1) ops_.push_back({name, kind, axis, stream, bytes, 0, 0, 0, 0});
  }
  void memory(const char* name, int64_t bytes) {
    ops_.push_back({name, model::OpKind::memory, Axis::none, model::Stream::compute, bytes, 0, 0, 0, 0});
  }
  void message(const char* name, model::OpKind kind) {
    ops_.push_back({name, kind, Axis::pp, model::Stream::pp, model::boundary_bytes(s_), 0, 0, 0, 0});
  }

  void load_batch(int stage) {
    const int64_t ids = (layout_.has_embedding(stage) ? 1 : 0) + (layout_.has_head(stage) ? 1 : 0);
    if (ids == 0) return;
    const int64_t bytes = ids * layout_.micro_batches() * s_.tokens * 8;
    ops_.push_back({"load_batch", model::OpKind::host, Axis::none, model::Stream::host, bytes, 0, 0, 0, 0});
  }

  void reduce_gradients(int stage, int chunk) {
    // With sequence parallel each rank saw only its tokens, so replicated weights have partial gradients.
    if (s_.sequence_parallel) {
      const int64_t replicated =
          model::replicated_parameter_count(layout_.run().model, layout_.chunk(stage, chunk));
      if (replicated > 0) {
        collective("norm_gradient_all_reduce", model::OpKind::all_reduce, Axis::tp, model::Stream::tp,
                   replicated * s_.gradient_bytes);
      }
    }
    collective("gradient_reduce_scatter", model::OpKind::reduce_scatter, Axis::dp, model::Stream::dp,
               layout_.padded_chunk_elements(stage, chunk) * s_.gradient_bytes);
  }

  // Two fp64 sums travel together: squares of the gradient, and the loss.
  void sum_over_all(const char* name) {
    constexpr int64_t bytes = 2 * 8;
    collective(name, model::OpKind::all_reduce, Axis::dp, model::Stream::dp, bytes);
    collective(name, model::OpKind::all_reduce, Axis::tp, model::Stream::tp, bytes);
    collective(name, model::OpKind::all_reduce, Axis::pp, model::Stream::pp, bytes);
  }

  void gradient_norm(int stage) {
    int64_t elements = 0;
    for (int c = 0; c < layout_.virtual_stages(); ++c) elements += layout_.shard_elements(stage, c);
    memory("gradient_norm", elements * s_.gradient_bytes);
    sum_over_all("norm_all_reduce");
  }

  // AdamW reads the gradient, reads and writes master weight and two moments, writes the compute weight.
  void optimizer_step(int stage, int chunk) {
    const int64_t each = s_.gradient_bytes + 6 * s_.gradient_bytes + s_.element_bytes;
    memory("adamw", layout_.shard_elements(stage, chunk) * each);
  }

  void gather_parameters(int stage, int chunk) {
    collective("parameter_all_gather", model::OpKind::all_gather, Axis::dp, model::Stream::dp,
               layout_.padded_chunk_elements(stage, chunk) * s_.element_bytes);
  }

  std::vector<model::Op> take() { return std::move(ops_); }

 private:
  const Layout& layout_;
  const model::ShardShape& s_;
  std::vector<model::Op> ops_;
};

}  // namespace

std::vector<Program> build_step_programs(const Layout& layout) {
  const auto passes = passes_with_messages(layout.schedule());
  std::vector<Program> programs;
  for (int stage = 0; stage < layout.stages(); ++stage) {
    programs.push_back(finish_step(layout, stage, passes[static_cast<size_t>(stage)]));
  }
  return programs;
}

std::vector<Program> build_evaluation_programs(const Layout& layout, int micro_batches) {
  Schedule schedule =
      build_schedule(config::ScheduleKind::gpipe, layout.stages(), layout.virtual_stages(), micro_batches);
  for (auto& slots : schedule.ranks) {
    std::erase_if(slots, [](const Slot& slot) { return slot.pass == Pass::backward; });
  }
  const auto passes = passes_with_messages(schedule);
  std::vector<Program> programs;
  for (int stage = 0; stage < layout.stages(); ++stage) {
    Program program{stage, passes[static_cast<size_t>(stage)]};
    program.actions.push_back({Kind::evaluation_loss});
    programs.push_back(std::move(program));
  }
  return programs;
}

std::vector<model::Op> action_ops(const Layout& layout, int stage, const Action& action) {
  StepOps ops(layout);
  switch (action.kind) {
    case Kind::load_batch:
      ops.load_batch(stage);
      break;
    case Kind::forward:
      return layout.layers().chunk_forward(layout.chunk(stage, action.chunk));
    case Kind::backward:
      return layout.layers().chunk_backward(layout.chunk(stage, action.chunk));
    case Kind::receive_forward:
      ops.message("receive_forward", model::OpKind::receive);
      break;
    case Kind::send_forward:
      ops.message("send_forward", model::OpKind::send);
      break;
    case Kind::receive_backward:
      ops.message("receive_backward", model::OpKind::receive);
      break;
    case Kind::send_backward:
      ops.message("send_backward", model::OpKind::send);
      break;
    case Kind::reduce_gradients:
      ops.reduce_gradients(stage, action.chunk);
      break;
    case Kind::gradient_norm:
      ops.gradient_norm(stage);
      break;
    case Kind::optimizer_step:
      ops.optimizer_step(stage, action.chunk);
      break;
    case Kind::gather_parameters:
      ops.gather_parameters(stage, action.chunk);
      break;
    case Kind::evaluation_loss:
      ops.sum_over_all("loss_all_reduce");
      break;
  }
  return ops.take();
}

const char* to_string(ActionKind kind) {
  switch (kind) {
    case Kind::load_batch:
      return "load_batch";
    case Kind::receive_forward:
      return "receive_forward";
    case Kind::forward:
      return "forward";
    case Kind::send_forward:
      return "send_forward";
    case Kind::receive_backward:
      return "receive_backward";
    case Kind::backward:
      return "backward";
    case Kind::send_backward:
      return "send_backward";
    case Kind::reduce_gradients:
      return "reduce_gradients";
    case Kind::gradient_norm:
      return "gradient_norm";
    case Kind::optimizer_step:
      return "optimizer_step";
    case Kind::gather_parameters:
      return "gather_parameters";
    case Kind::evaluation_loss:
      return "evaluation_loss";
  }
  return "?";
}

std::string describe(const Action& action) {
  std::string text = to_string(action.kind);
  if (action.chunk >= 0) text += " chunk " + std::to_string(action.chunk);
  if (action.micro_batch >= 0) text += " micro-batch " + std::to_string(action.micro_batch);
  if (action.peer >= 0) text += " peer " + std::to_string(action.peer);
  return text;
}

}  // namespace lockstep::parallel
