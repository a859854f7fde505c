#include "sim/crowding.hpp"

#include <algorithm>
#include <functional>
#include <map>
#include <memory>
#include <utility>

namespace lockstep::sim {

namespace {

using Kind = parallel::ActionKind;

// Whether an action waits for the collective of `queued`.
bool waits(const parallel::Action& action, const parallel::Action& queued, bool one_reduction_at_a_time) {
  switch (action.kind) {
    case Kind::gather_gradients:
    case Kind::sum_tied_gradients:
    case Kind::gradient_norm:
      return true;
    case Kind::reduce_gradients:
      return one_reduction_at_a_time && queued.kind == Kind::reduce_gradients;
    default:
      return queued.kind == Kind::unshard && parallel::is_pass(action.kind) && action.chunk == queued.chunk;
  }
}

// What has been counted: how often each transfer, by lane; by one for all as long as they are alike.
class Counted {
 public:
  Counted(const TransferTimes& collective, size_t lanes) : collective_(collective), lanes_(lanes) {}

  // False when kernels of `offset` seconds outlast the collective on every lane.
  bool add(const TransferTimes& transfer, const Sharing& sharing, double offset) {
    OfTransfer& counted = transfers_[&transfer];
    counted.sharing = &sharing;
    counted.times.resize(collective_.seconds.is_same_for_all() ? 1 : lanes_);
    bool lasts = false;
    for (size_t lane = 0; lane < counted.times.size(); ++lane) {
      if (offset >= collective_.seconds[lane]) continue;
      lasts = true;
      counted.times[lane] += 1;
    }
    return lasts;
  }

  PerLane result() const {
    bool alike = collective_.seconds.is_same_for_all();
    for (const auto& [transfer, counted] : transfers_) {
      alike = alike && transfer->seconds.is_same_for_all() && counted.sharing->first.is_same_for_all() &&
              counted.sharing->second.is_same_for_all();
    }
    std::vector<double> factors;
    for (size_t lane = 0; lane < (alike ? 1 : lanes_); ++lane) {
      factors.push_back(1 + delay(lane, true) + delay(lane, false));
    }
    return PerLane(std::move(factors));
  }

 private:
  struct OfTransfer {
    const Sharing* sharing = nullptr;
    std::vector<double> times;
  };

  // Of the collective's length, by one stream. Those that hold it up most come first: as others get faster,
  // no more of these fit beside it.
  double delay(size_t lane, bool messages) const {
    std::vector<std::pair<double, double>> parts;  // pace, share of the collective's work
    for (const auto& [transfer, counted] : transfers_) {
      const double pace = counted.sharing->second[lane];
      if ((transfer->transfer.kind == model::OpKind::send) != messages || pace <= 1) continue;
      const double beside = transfer->seconds[lane] * counted.sharing->first[lane];
      const double times = counted.times[counted.times.size() == 1 ? 0 : lane];
      if (times > 0) parts.push_back({pace, times * beside / (collective_.seconds[lane] * pace)});
    }
    std::sort(parts.begin(), parts.end(), std::greater<>());
    double left = 1, delay = 0;
    for (const auto& [pace, wanted] : parts) {
      const double share = std::min(wanted, left);
      left -= share;
      delay += share * (pace - 1);
    }
    return delay;
  }

  const TransferTimes& collective_;
  size_t lanes_;
  std::map<const TransferTimes*, OfTransfer> transfers_;
};

// Of the collective that is op `from` of action `at`.
PerLane crowding_of(const std::vector<PricedAction>& actions, size_t at, size_t from,
                    bool one_reduction_at_a_time, StageTransfers& transfers) {
  const TransferTimes& collective = *(*actions[at].ops)[from].transfer;
  Counted counted(collective, transfers.lanes());
  double offset = 0;
  for (size_t i = at; i < actions.size(); ++i) {
    if (i > at && waits(actions[i].action, actions[at].action, one_reduction_at_a_time)) break;
    const std::vector<PricedOp>& ops = *actions[i].ops;
    for (size_t j = i == at ? from + 1 : 0; j < ops.size(); ++j) {
      if (ops[j].way == Way::dp) return counted.result();
      if (ops[j].way == Way::kernel) offset += ops[j].seconds;
      if (ops[j].transfer == nullptr) continue;
      const Sharing& sharing = transfers.sharing(*ops[j].transfer, collective);
      if (sharing.any && !counted.add(*ops[j].transfer, sharing, offset)) return counted.result();
    }
  }
  return counted.result();
}

}  // namespace

void add_crowding(std::vector<PricedAction>& actions, bool one_reduction_at_a_time,
                  StageTransfers& transfers) {
  for (size_t i = 0; i < actions.size(); ++i) {
    if (!is_queued(actions[i].action.kind)) continue;
    std::vector<PerLane> crowded(actions[i].ops->size(), 1);
    bool any = false;
    for (size_t j = 0; j < crowded.size(); ++j) {
      if ((*actions[i].ops)[j].way != Way::dp) continue;
      crowded[j] = crowding_of(actions, i, j, one_reduction_at_a_time, transfers);
      any = any || crowded[j].highest() > 1;
    }
    if (any) actions[i].crowded = std::make_shared<const std::vector<PerLane>>(std::move(crowded));
  }
}

}  // namespace lockstep::sim
