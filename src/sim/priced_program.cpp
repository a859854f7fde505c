#include "sim/priced_program.hpp"

#include <string>

#include "base/error.hpp"
#include "cost/collective_cost.hpp"

namespace lockstep::sim {

namespace {

using Kind = parallel::ActionKind;

Way way_of(const model::Op& op) {
  if (cost::is_kernel(op.kind)) return Way::kernel;
  if (op.kind == model::OpKind::send) return Way::send;
  if (op.kind == model::OpKind::receive) return Way::receive;
  switch (op.axis) {
    case model::Axis::tp:
      return Way::tp;
    case model::Axis::dp:
      return Way::dp;
    case model::Axis::pp:
      return Way::pp;
    default:
      throw RunError("op " + std::string(op.name) + ": collectives along this axis are not simulated yet");
  }
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
  const bool pass_or_message = is_pass(action.kind) || message;
  if (action.chunk >= layout.virtual_stages() || (pass_or_message && action.chunk < 0)) {
    fail("there is no such chunk");
  }
  if (pass_or_message && action.micro_batch < 0) fail("it names no micro-batch");
  if (message && outside(action.peer, layout.stages())) fail("there is no such stage");
  if (message && outside(action.peer_chunk, layout.virtual_stages())) fail("its peer has no such chunk");
}

}  // namespace

bool is_pass(Kind kind) { return kind == Kind::forward || kind == Kind::backward; }

bool is_receive(Kind kind) { return kind == Kind::receive_forward || kind == Kind::receive_backward; }

bool goes_forward(Kind kind) {
  return kind == Kind::forward || kind == Kind::send_forward || kind == Kind::receive_forward;
}

PricedProgram::PricedProgram(const parallel::Layout& layout, const parallel::Program& program,
                             const cost::OpPrices& prices)
    : stage_(program.stage) {
  actions_.reserve(program.actions.size());
  for (const parallel::Action& action : program.actions) {
    check_action(layout, program.stage, action);
    auto& list = lists_[{action.kind, action.chunk}];
    if (list == nullptr) {
      list = std::make_unique<std::vector<PricedOp>>();
      for (const model::Op& op : parallel::action_ops(layout, program.stage, action)) {
        list->push_back(price(layout, op, prices));
      }
    }
    actions_.push_back({action, list.get(), op_count_});
    op_count_ += static_cast<uint32_t>(list->size());
  }
}

}  // namespace lockstep::sim
