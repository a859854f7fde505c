#include "cost/collective_cost.hpp"

#include <stdexcept>

namespace lockstep::cost {

CollectiveCost ring_cost(model::OpKind kind, int ranks) {
  if (!model::is_collective(kind)) throw std::invalid_argument("only collectives go round a ring");
  const double rounds = ranks - 1;
  const CollectiveCost once{rounds, rounds / ranks};
  if (kind == model::OpKind::all_reduce) return {2 * once.rounds, 2 * once.share};
  return once;
}

}  // namespace lockstep::cost
