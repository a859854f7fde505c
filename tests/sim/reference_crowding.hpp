// How much longer a rank's part of a queued collective takes by what its program puts beside it, in the plain
// simulator: from the flat list of its ops.
#pragma once

#include <algorithm>
#include <map>
#include <utility>
#include <vector>

#include "cost/op_prices.hpp"
#include "sim/reference_network.hpp"
#include "sim/reference_rank.hpp"

namespace lockstep::tests {

class ReferenceCrowding {
  using Kind = parallel::ActionKind;

 public:
  ReferenceCrowding(const parallel::Layout& layout, const cost::OpPrices& prices, ReferenceNetwork& network,
                    bool contention)
      : layout_(layout), prices_(prices), network_(network), contention_(contention) {}

  double factor(int rank, const std::vector<FlatOp>& ops, size_t at) {
    const Action& queued = *ops[at].action;
    const bool is_beside = queued.kind == Kind::unshard || queued.kind == Kind::reduce_gradients ||
                           queued.kind == Kind::gather_parameters;
    if (!contention_ || !is_beside) return 1;
    const cost::Transfer collective = transfer_of(rank, ops[at]);
    const double alone = network_.seconds(collective, rank);
    double kernels = 0;
    std::map<bool, std::vector<std::pair<double, double>>>
        streams;  // messages or not: pace, share of its work
    for (size_t i = at + 1; i < ops.size(); ++i) {
      const FlatOp& f = ops[i];
      if (f.action != &queued && waits(*f.action, queued)) break;
      if (f.none || f.op.kind == model::OpKind::receive) continue;
      if (cost::is_kernel(f.op.kind)) {
        kernels += prices_.kernel_seconds(f.op);
        continue;
      }
      if (f.op.axis == model::Axis::dp_cp) break;
      const cost::Transfer other = transfer_of(rank, f);
      const double pace = network_.slowing(collective, other, rank);
      if (kernels >= alone || pace <= 1) continue;
      const double beside = network_.seconds(other, rank) * network_.slowing(other, collective, rank);
      streams[other.kind == model::OpKind::send].push_back({pace, beside / (alone * pace)});
    }
    double factor = 1;
    for (auto& [is_messages, parts] : streams) {
      std::sort(parts.begin(), parts.end(), [](const auto& a, const auto& b) { return a.first > b.first; });
      double left = 1;
      for (const auto& [pace, wanted] : parts) {
        factor += std::min(wanted, left) * (pace - 1);
        left -= std::min(wanted, left);
      }
    }
    return factor;
  }

 private:
  bool waits(const Action& action, const Action& queued) const {
    const bool pass = parallel::is_pass(action.kind);
    if (queued.kind == Kind::unshard && pass && action.chunk == queued.chunk) return true;
    const bool one_at_a_time = layout_.zero() >= 2 || layout_.rounds() > 1;
    if (action.kind == Kind::reduce_gradients && queued.kind == Kind::reduce_gradients) return one_at_a_time;
    return action.kind == Kind::gather_gradients || action.kind == Kind::sum_tied_gradients ||
           action.kind == Kind::gradient_norm;
  }

  cost::Transfer transfer_of(int rank, const FlatOp& f) const {
    if (f.op.kind != model::OpKind::send) return {f.op.kind, f.op.axis, f.op.bytes};
    const int stages = layout_.stages();
    const int stage = layout_.mesh().coordinates(rank).pp;
    return {f.op.kind, f.op.axis, f.op.bytes, (f.action->peer - stage + stages) % stages};
  }

  const parallel::Layout& layout_;
  const cost::OpPrices& prices_;
  ReferenceNetwork& network_;
  bool contention_;
};

}  // namespace lockstep::tests
