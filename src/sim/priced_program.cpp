#include "sim/priced_program.hpp"

#include <string>

#include "base/error.hpp"
#include "cost/collective_cost.hpp"

namespace lockstep::sim {

namespace {

Way way_of(const model::Op& op) {
  if (cost::is_kernel(op.kind)) return Way::kernel;
  if (op.kind == model::OpKind::send) return Way::send;
  if (op.kind == model::OpKind::receive) return Way::receive;
  switch (op.axis) {
    case model::Axis::tp:
      return Way::tp;
    case model::Axis::tp_kv:
      return Way::tp_kv;
    case model::Axis::cp:
      return Way::cp;
    case model::Axis::dp_cp:
      return Way::dp;
    case model::Axis::pp:
      return Way::pp;
    case model::Axis::pp_ends:
      return Way::pp_ends;
    case model::Axis::none:
    case model::Axis::dp:
      break;
  }
  throw RunError("op " + std::string(op.name) + ": no step has collectives along " +
                 model::to_string(op.axis));
}

PricedOp price(const parallel::Layout& layout, const model::Op& op, const cost::OpPrices& prices) {
  PricedOp priced{op, way_of(op)};
  if (priced.way == Way::kernel) {
    priced.seconds = prices.kernel_seconds(op);
  } else if (model::is_collective(op.kind)) {
    const cost::CollectiveCost ring = cost::ring_cost(op.kind, layout.mesh().size(op.axis));
    priced.rounds = ring.rounds;
    priced.bytes = ring.share * static_cast<double>(op.bytes);
  } else {
    priced.rounds = 1;
    priced.bytes = static_cast<double>(op.bytes);
  }
  return priced;
}

void check_action(const parallel::Layout& layout, int stage, const parallel::Action& action) {
  const auto fail = [&](const std::string& why) {
    throw RunError("stage " + std::to_string(stage) + ", " + parallel::describe(action) + ": " + why);
  };
  const auto outside = [](int value, int count) { return value < 0 || value >= count; };
  const bool message = action.peer >= 0;
  const bool pass_or_message = parallel::is_pass(action.kind) || message;
  if (action.chunk >= layout.virtual_stages() || (pass_or_message && action.chunk < 0)) {
    fail("there is no such chunk");
  }
  if (pass_or_message && action.micro_batch < 0) fail("it names no micro-batch");
  if (message && outside(action.peer, layout.stages())) fail("there is no such stage");
  if (message && outside(action.peer_chunk, layout.virtual_stages())) fail("its peer has no such chunk");
}

}  // namespace

PricedProgram::PricedProgram(const parallel::Layout& layout, const parallel::Program& program,
                             const cost::OpPrices& prices)
    : stage_(program.stage), one_reduction_at_a_time_(!layout.gradients_persist()) {
  actions_.reserve(program.actions.size());
  for (const parallel::Action& action : program.actions) {
    check_action(layout, program.stage, action);
    auto& list = lists_[{action.kind, action.chunk}];
    if (list == nullptr) {
      list = std::make_shared<std::vector<PricedOp>>();
      for (const model::Op& op : parallel::action_ops(layout, program.stage, action)) {
        list->push_back(price(layout, op, prices));
      }
    }
    actions_.push_back({action, list.get(), op_count_});
    op_count_ += static_cast<uint32_t>(list->size());
  }
}

PricedProgram PricedProgram::passes_and_messages() const {
  PricedProgram out = *this;
  std::erase_if(out.actions_, [](const PricedAction& a) {
    return !parallel::is_pass(a.action.kind) && !parallel::is_send(a.action.kind) &&
           !parallel::is_receive(a.action.kind);
  });
  return out;
}

}  // namespace lockstep::sim
