#include "sim/priced_program.hpp"

#include <algorithm>
#include <string>

#include "base/error.hpp"
#include "sim/crowding.hpp"
#include "sim/op_transfer.hpp"

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

PathKind kind_of(parallel::ActionKind action, Way way, const model::Op& op) {
  using Kind = parallel::ActionKind;
  if (way != Way::kernel) return transfer_kind(op.axis);
  if (action == Kind::load_batch) return PathKind::data;
  if (action == Kind::gradient_norm || action == Kind::optimizer_step) return PathKind::optimizer;
  if (op.kind == model::OpKind::gemm) return PathKind::gemm;
  return op.kind == model::OpKind::attention ? PathKind::attention : PathKind::memory;
}

void make_free(PricedOp& op) {
  op.seconds = 0;
  if (op.transfer == nullptr) return;
  op.transfer = std::make_shared<TransferTimes>(TransferTimes{op.transfer->transfer, 0, 0});
}

PricedOp price(const parallel::Layout& layout, int stage, const parallel::Action& action, const model::Op& op,
               const cost::OpPrices& prices, StageTransfers& transfers) {
  const Way way = way_of(op);
  PricedOp priced{op, way, kind_of(action.kind, way, op), 0, nullptr};
  if (priced.way == Way::kernel) priced.seconds = prices.kernel_seconds(op);
  if (const auto transfer = transfer_of(layout, stage, action, op))
    priced.transfer = transfers.times(*transfer, prices.waited_share(op));
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
                             const cost::OpPrices& prices, StageTransfers& transfers,
                             const std::vector<PathKind>& free, bool contention)
    : stage_(program.stage), one_reduction_at_a_time_(!layout.gradients_persist()) {
  actions_.reserve(program.actions.size());
  for (const parallel::Action& action : program.actions) {
    check_action(layout, program.stage, action);
    const ListKey key{action.kind, action.chunk, action.peer};
    auto& list = lists_[key];
    if (list == nullptr) {
      list = std::make_shared<std::vector<PricedOp>>();
      const std::vector<model::Op> ops = parallel::action_ops(layout, program.stage, action);
      const bool host_is_free = std::find(free.begin(), free.end(), PathKind::host) != free.end();
      host_seconds_[key] = host_is_free ? 0 : prices.host_seconds(action.kind, ops);
      for (const model::Op& op : ops) {
        PricedOp priced = price(layout, program.stage, action, op, prices, transfers);
        if (std::find(free.begin(), free.end(), priced.kind) != free.end()) make_free(priced);
        list->push_back(std::move(priced));
      }
    }
    actions_.push_back({action, list.get(), op_count_, host_seconds_[key], {}});
    op_count_ += static_cast<uint32_t>(list->size());
  }
  if (contention) add_crowding(actions_, one_reduction_at_a_time_, transfers);
}

std::vector<PricedOp> PricedProgram::ops_alone(const PricedAction& action, Free free) {
  std::vector<PricedOp> out;
  PricedOp pass;
  for (const PricedOp& op : *action.ops) {
    if (op.way == Way::kernel) pass.seconds += op.seconds;
    const bool blocks = op.way == Way::tp || op.way == Way::cp;
    if (blocks && free == Free::messages) pass.seconds += op.transfer->waited.highest();
    if (op.way != Way::send && op.way != Way::receive) continue;
    out.push_back(op);
    if (op.way == Way::send) {
      out.back().transfer = std::make_shared<TransferTimes>(TransferTimes{op.transfer->transfer, 0, 0});
    }
  }
  pass.seconds = std::max(pass.seconds, action.host_seconds);
  if (pass.seconds > 0) out.push_back(pass);
  return out;
}

PricedProgram PricedProgram::schedule_alone(Free free) const {
  PricedProgram out;
  out.stage_ = stage_;
  out.actions_.reserve(actions_.size());
  for (const PricedAction& priced : actions_) {
    const parallel::Action& a = priced.action;
    if (!parallel::is_pass(a.kind) && !parallel::is_send(a.kind) && !parallel::is_receive(a.kind)) continue;
    auto& list = out.lists_[{a.kind, a.chunk, a.peer}];
    if (list == nullptr) list = std::make_shared<std::vector<PricedOp>>(ops_alone(priced, free));
    out.actions_.push_back({a, list.get(), out.op_count_, 0, {}});
    out.op_count_ += static_cast<uint32_t>(list->size());
  }
  return out;
}

}  // namespace lockstep::sim
