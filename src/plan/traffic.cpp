#include "plan/traffic.hpp"

#include <map>

namespace lockstep::plan {

namespace {

using model::Axis;

void add(Traffic& sum, const Traffic& more) {
  sum.tp += more.tp;
  sum.cp += more.cp;
  sum.pp += more.pp;
  sum.dp += more.dp;
}

Traffic traffic_of_ops(const std::vector<model::Op>& ops) {
  Traffic t;
  for (const model::Op& op : ops) {
    if (!model::is_collective(op.kind) && op.kind != model::OpKind::send) continue;
    switch (op.axis) {
      case Axis::tp:
      case Axis::tp_kv:
        t.tp += op.bytes;
        break;
      case Axis::cp:
        t.cp += op.bytes;
        break;
      case Axis::pp:
      case Axis::pp_ends:
        t.pp += op.bytes;
        break;
      case Axis::dp:
      case Axis::dp_cp:
        t.dp += op.bytes;
        break;
      case Axis::none:
        break;
    }
  }
  return t;
}

}  // namespace

Traffic traffic_of(const parallel::Layout& layout, const parallel::Program& program) {
  std::map<std::pair<parallel::ActionKind, int>, Traffic> known;  // ops do not depend on the micro-batch
  Traffic sum;
  sum.stage = program.stage;
  for (const parallel::Action& action : program.actions) {
    const auto [found, is_new] = known.try_emplace({action.kind, action.chunk});
    if (is_new) found->second = traffic_of_ops(parallel::action_ops(layout, program.stage, action));
    add(sum, found->second);
  }
  return sum;
}

}  // namespace lockstep::plan
