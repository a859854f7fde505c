// How much longer a rank's part of a queued collective takes by what its program puts beside it, in the plain
// simulator: from the flat list of its ops.
#pragma once

#include <algorithm>
#include <map>
#include <optional>
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

  // The end of a part that begins at `start` and alone takes `seconds`; messages, the last of them `sent`,
  // are on their way before `until`.
  double end(int rank, const std::vector<FlatOp>& ops, size_t at, double start, double seconds,
             const std::optional<cost::Transfer>& sent, double until) {
    if (!contention_) return start + seconds;
    const cost::Transfer collective = transfer_of(rank, ops[at]);
    std::map<cost::Transfer, double> blocking, messages;  // how often
    count(rank, ops, at, blocking, messages);
    if (sent) messages.try_emplace(*sent, 0);
    std::vector<std::pair<double, double>> phases;  // pace, seconds that it lasts
    for (const auto& [message, times] : messages) {
      const double each = network_.seconds(message, rank) * network_.slowing(message, {collective}, rank);
      const double left = sent && message == *sent ? std::max(0.0, until - start) : 0;
      phases.emplace_back(pace(rank, collective, blocking, {message}), times * each + left);
    }
    std::sort(phases.rbegin(), phases.rend());
    double now = start, work = 1;
    for (const auto& [pace, lasts] : phases) {
      const double done = std::min(work, lasts / (seconds * pace));
      now += done * seconds * pace;
      work -= done;
    }
    return now + work * seconds * pace(rank, collective, blocking, {});
  }

 private:
  void count(int rank, const std::vector<FlatOp>& ops, size_t at, std::map<cost::Transfer, double>& blocking,
             std::map<cost::Transfer, double>& messages) {
    const Action& queued = *ops[at].action;
    const bool is_beside = queued.kind == Kind::unshard || queued.kind == Kind::reduce_gradients ||
                           queued.kind == Kind::gather_parameters;
    if (!is_beside) return;
    const cost::Transfer collective = transfer_of(rank, ops[at]);
    const double alone = network_.seconds(collective, rank);
    double kernels = 0;
    for (size_t i = at + 1; i < ops.size(); ++i) {
      const FlatOp& f = ops[i];
      if (f.action != &queued && waits(*f.action, queued)) return;
      if (f.none || f.op.kind == model::OpKind::receive) continue;
      if (cost::is_kernel(f.op.kind)) {
        kernels += prices_.kernel_seconds(f.op);
        continue;
      }
      if (f.op.axis == model::Axis::dp_cp) return;
      if (kernels >= alone) continue;
      const cost::Transfer other = transfer_of(rank, f);
      ++(other.kind == model::OpKind::send ? messages : blocking)[other];
    }
  }

  // Times as long as alone: beside `always`, and for a share of its work beside each blocking transfer too,
  // the slowest first.
  double pace(int rank, const cost::Transfer& collective, const std::map<cost::Transfer, double>& blocking,
              const std::vector<cost::Transfer>& always) {
    const double base = network_.slowing(collective, always, rank);
    const double alone = network_.seconds(collective, rank);
    std::vector<std::pair<double, double>> parts;  // pace, share of its work
    for (const auto& [other, times] : blocking) {
      std::vector<cost::Transfer> beside = always, beside_other = always;
      beside.push_back(other);
      beside_other.push_back(collective);
      const double pace = network_.slowing(collective, beside, rank);
      const double lasts =
          times * network_.seconds(other, rank) * network_.slowing(other, beside_other, rank);
      parts.emplace_back(pace, lasts / (alone * pace));
    }
    std::sort(parts.rbegin(), parts.rend());
    double left = 1, sum = base;
    for (const auto& [pace, wanted] : parts) {
      const double share = std::min(left, wanted);
      sum += share * (pace - base);
      left -= share;
    }
    return sum;
  }

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
