#include "sim/crowding.hpp"

#include <algorithm>
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

// What has been counted, by stream and lane; of one lane for all as long as they are alike.
class Counted {
 public:
  Counted(const TransferTimes& collective, size_t lanes) : collective_(collective), lanes_(lanes) {}

  // False when kernels of `offset` seconds outlast the collective on every lane.
  bool add(const TransferTimes& transfer, const Sharing& sharing, double offset) {
    const bool alike = collective_.seconds.is_same_for_all() && transfer.seconds.is_same_for_all() &&
                       sharing.first.is_same_for_all() && sharing.second.is_same_for_all();
    OfStream& stream = transfer.transfer.kind == model::OpKind::send ? messages_ : compute_;
    if (!alike) stream.spread(lanes_);
    bool lasts = false;
    for (size_t lane = 0; lane < stream.share.size(); ++lane) {
      const double alone = collective_.seconds[lane], pace = sharing.second[lane];
      if (offset >= alone) continue;
      lasts = true;
      if (pace <= 1) continue;
      const double wanted = transfer.seconds[lane] * sharing.first[lane] / (alone * pace);
      const double share = std::min(wanted, 1 - stream.share[lane]);
      stream.share[lane] += share;
      stream.delay[lane] += share * (pace - 1);
    }
    return lasts;
  }

  PerLane result() const {
    std::vector<double> factors(std::max(compute_.delay.size(), messages_.delay.size()), 1.0);
    for (const OfStream* stream : {&compute_, &messages_}) {
      const bool one = stream->delay.size() == 1;
      for (size_t lane = 0; lane < factors.size(); ++lane) factors[lane] += stream->delay[one ? 0 : lane];
    }
    return PerLane(std::move(factors));
  }

 private:
  struct OfStream {
    std::vector<double> share = {0.0}, delay = {0.0};  // of the collective's work; of its length
    void spread(size_t lanes) {
      if (share.size() == lanes) return;
      share.resize(lanes, share[0]);
      delay.resize(lanes, delay[0]);
    }
  };
  const TransferTimes& collective_;
  size_t lanes_;
  OfStream compute_, messages_;
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
