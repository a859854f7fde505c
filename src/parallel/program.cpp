#include "parallel/program.hpp"

#include <algorithm>
#include <map>

#include "parallel/message_order.hpp"
#include "parallel/step_ops.hpp"

namespace lockstep::parallel {

namespace {

using Kind = ActionKind;

// A range of passes, by their place among a stage's passes, over which a chunk's parameters are gathered.
struct Residency {
  int chunk = 0;
  int first = 0, last = 0;
};

// With reshard_after_forward (and in evaluations, where nothing follows) a chunk's parameters are freed when
// its next pass is not one of the next two: gathering takes one pass, so nothing would be freed.
std::vector<Residency> residencies(const Layout& layout, const std::vector<Action>& passes) {
  constexpr int shortest_gap = 2;
  const bool reshards = layout.run().parallel.reshard_after_forward;
  std::vector<Residency> all;
  std::map<int, size_t> open;  // by chunk, its newest
  int place = 0;
  for (const Action& action : passes) {
    if (!is_pass(action.kind)) continue;
    const auto found = open.find(action.chunk);
    if (found != open.end() && (!reshards || place - all[found->second].last <= shortest_gap)) {
      all[found->second].last = place;
    } else {
      open[action.chunk] = all.size();
      all.push_back({action.chunk, place, place});
    }
    ++place;
  }
  return all;
}

// Puts unshards one pass ahead of use, and reshards after.
std::vector<Action> with_parameters_gathered(const Layout& layout, const std::vector<Action>& passes) {
  constexpr int none = -1;
  // By place, the chunk that becomes resident there, or ends to be: one at most, the pass's own.
  std::vector<int> first_use(passes.size() + 1, none), last_use = first_use;
  for (const Residency& r : residencies(layout, passes)) {
    first_use[static_cast<size_t>(r.first)] = r.chunk;
    last_use[static_cast<size_t>(r.last)] = r.chunk;
  }
  std::vector<Action> out;
  size_t place = 0;
  const auto unshard = [&](size_t at) {
    if (first_use[at] != none) out.push_back({Kind::unshard, first_use[at]});
  };
  unshard(0);
  for (const Action& action : passes) {
    if (is_pass(action.kind)) unshard(place + 1);
    out.push_back(action);
    if (!is_pass(action.kind)) continue;
    if (last_use[place] != none) out.push_back({Kind::reshard, last_use[place]});
    ++place;
  }
  return out;
}

// Whether a chunk's gradients are reduced after this micro-batch.
bool is_reduced_after(const Layout& layout, int micro_batch) {
  return layout.scatters_every_micro_batch() || (micro_batch + 1) % layout.replica_micro_batches() == 0;
}

void append_step_end(const Layout& layout, Program& program) {
  const auto each_chunk = [&](auto f) {
    for (int chunk = 0; chunk < layout.virtual_stages(); ++chunk) f(chunk);
  };
  const auto add = [&](Kind kind, int chunk = -1) { program.actions.push_back({kind, chunk}); };
  if (layout.zero() == 0) each_chunk([&](int chunk) { add(Kind::gather_gradients, chunk); });
  each_chunk([&](int chunk) {
    if (layout.has_tied_copy(program.stage, chunk)) add(Kind::sum_tied_gradients, chunk);
  });
  add(Kind::gradient_norm);
  each_chunk([&](int chunk) {
    add(Kind::optimizer_step, chunk);
    if (layout.gathers_after_update()) add(Kind::gather_parameters, chunk);
  });
}

Program training_program(const Layout& layout, int stage, std::vector<Action> passes) {
  if (layout.zero() == 3) passes = with_parameters_gathered(layout, passes);
  Program program{stage, {{Kind::load_batch}}};
  for (int chunk = 0; layout.gathers_at_start() && chunk < layout.virtual_stages(); ++chunk) {
    program.actions.push_back({Kind::unshard, chunk});
  }
  std::vector<Action> after_last_backward;
  for (const Action& action : passes) {
    program.actions.push_back(action);
    if (ends_backward(action.kind) && is_reduced_after(layout, action.micro_batch)) {
      std::vector<Action>& to =
          layout.run().software.overlap_gradients ? program.actions : after_last_backward;
      to.push_back({Kind::reduce_gradients, action.chunk, action.micro_batch});
    }
  }
  program.actions.insert(program.actions.end(), after_last_backward.begin(), after_last_backward.end());
  append_step_end(layout, program);
  return program;
}

}  // namespace

std::vector<Program> build_step_programs(const Layout& layout) {
  auto passes = passes_with_messages(layout.schedule());
  std::vector<Program> programs;
  for (int stage = 0; stage < layout.stages(); ++stage) {
    programs.push_back(training_program(layout, stage, std::move(passes[static_cast<size_t>(stage)])));
  }
  return programs;
}

std::vector<Program> build_evaluation_programs(const Layout& layout, int micro_batches) {
  const auto kind =
      layout.virtual_stages() > 1 ? config::ScheduleKind::interleaved : config::ScheduleKind::gpipe;
  Schedule schedule = build_schedule(kind, layout.stages(), layout.virtual_stages(), micro_batches);
  for (auto& slots : schedule.ranks) {
    std::erase_if(slots, [](const Slot& slot) { return slot.pass != Pass::forward; });
  }
  auto passes = passes_with_messages(schedule);
  std::vector<Program> programs;
  for (int stage = 0; stage < layout.stages(); ++stage) {
    std::vector<Action>& own = passes[static_cast<size_t>(stage)];
    Program program{stage, layout.zero() == 3 ? with_parameters_gathered(layout, own) : std::move(own)};
    program.actions.push_back({Kind::evaluation_loss});
    programs.push_back(std::move(program));
  }
  return programs;
}

std::vector<model::Op> action_ops(const Layout& layout, int stage, const Action& action) {
  StepOps ops(layout, stage);
  switch (action.kind) {
    case Kind::load_batch:
      ops.load_batch();
      break;
    case Kind::unshard:
    case Kind::gather_parameters:
      ops.gather_parameters(action.chunk);
      break;
    case Kind::reshard:
      break;
    case Kind::forward:
      return layout.layers().chunk_forward(layout.chunk(stage, action.chunk));
    case Kind::backward:
      return layout.layers().chunk_backward(layout.chunk(stage, action.chunk));
    case Kind::backward_input:
      return layout.layers().chunk_backward_input(layout.chunk(stage, action.chunk));
    case Kind::backward_weight:
      return layout.layers().chunk_backward_weight(layout.chunk(stage, action.chunk));
    case Kind::receive_forward:
    case Kind::receive_backward:
      ops.message(to_string(action.kind), model::OpKind::receive);
      break;
    case Kind::send_forward:
    case Kind::send_backward:
      ops.message(to_string(action.kind), model::OpKind::send);
      break;
    case Kind::reduce_gradients:
      ops.reduce_gradients(action.chunk);
      break;
    case Kind::gather_gradients:
      ops.gather_gradients(action.chunk);
      break;
    case Kind::sum_tied_gradients:
      ops.sum_tied_gradients(action.chunk);
      break;
    case Kind::gradient_norm:
      ops.gradient_norm();
      break;
    case Kind::optimizer_step:
      ops.optimizer_step(action.chunk);
      break;
    case Kind::evaluation_loss:
      ops.evaluation_loss();
      break;
  }
  return ops.take();
}

const char* to_string(ActionKind kind) {
  switch (kind) {
    case Kind::load_batch:
      return "load_batch";
    case Kind::unshard:
      return "unshard";
    case Kind::reshard:
      return "reshard";
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
    case Kind::backward_input:
      return "backward_input";
    case Kind::backward_weight:
      return "backward_weight";
    case Kind::send_backward:
      return "send_backward";
    case Kind::reduce_gradients:
      return "reduce_gradients";
    case Kind::gather_gradients:
      return "gather_gradients";
    case Kind::sum_tied_gradients:
      return "sum_tied_gradients";
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
