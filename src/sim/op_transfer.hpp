// Which transfer an op of a program is.
#pragma once

#include <optional>

#include "cost/transfer_prices.hpp"
#include "parallel/program.hpp"

namespace lockstep::sim {

// Stages from `stage` to the peer of one of its actions, forward and around.
inline int shift_to_peer(const parallel::Layout& layout, int stage, const parallel::Action& action) {
  return (action.peer - stage + layout.stages()) % layout.stages();
}

// None for a kernel, and for a receive, which is its sender's transfer.
inline std::optional<cost::Transfer> transfer_of(const parallel::Layout& layout, int stage,
                                                 const parallel::Action& action, const model::Op& op) {
  const bool sends = op.kind == model::OpKind::send;
  if (!sends && !model::is_collective(op.kind)) return std::nullopt;
  return cost::Transfer{op.kind, op.axis, op.bytes, sends ? shift_to_peer(layout, stage, action) : 0};
}

}  // namespace lockstep::sim
