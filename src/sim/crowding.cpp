#include "sim/crowding.hpp"

#include <algorithm>
#include <functional>
#include <map>
#include <memory>
#include <utility>

#include "sim/priced_program.hpp"

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

bool is_message(const TransferTimes& t) { return t.transfer.kind == model::OpKind::send; }

// What stands beside one collective: how often each transfer, by lane; by one for all as long as they are
// alike.
class Counted {
 public:
  Counted(const TransferTimes& collective, StageTransfers& transfers)
      : collective_(collective), transfers_(transfers) {}

  // Of messages also those that are sent before.
  void know(const TransferTimes& transfer) {
    if (!transfers_.sharing(transfer, collective_).any) return;
    auto& times = times_[&transfer];
    times.resize(collective_.seconds.is_same_for_all() ? 1 : transfers_.lanes());
  }
  // False when kernels of `offset` seconds outlast the collective on every lane.
  bool add(const TransferTimes& transfer, double offset) {
    know(transfer);
    const auto known = times_.find(&transfer);
    if (known == times_.end()) return true;
    bool lasts = false;
    for (size_t lane = 0; lane < known->second.size(); ++lane) {
      if (offset >= collective_.seconds[lane]) continue;
      lasts = true;
      known->second[lane] += 1;
    }
    return lasts;
  }

  Crowding result() const {
    Crowding out;
    out.is_same_for_all = is_alike();
    out.pace = by_lane([this](size_t lane) { return pace(lane, nullptr); });
    for (const auto& [transfer, times] : times_) {
      if (!is_message(*transfer)) continue;
      const Sharing& with = transfers_.sharing(*transfer, collective_);
      out.messages.push_back(
          {transfer, by_lane([&](size_t lane) { return pace(lane, transfer); }), by_lane([&](size_t lane) {
             return count(times, lane) * transfer->seconds[lane] * with.first[lane];
           })});
    }
    return out;
  }

 private:
  static double count(const std::vector<double>& times, size_t lane) {
    return times[times.size() == 1 ? 0 : lane];
  }

  template <class Value>
  PerLane by_lane(Value value) const {
    std::vector<double> out;
    for (size_t lane = 0; lane < (is_alike() ? 1 : transfers_.lanes()); ++lane) out.push_back(value(lane));
    return PerLane(std::move(out));
  }
  bool is_alike() const {
    if (!collective_.seconds.is_same_for_all()) return false;
    for (const auto& [transfer, times] : times_) {
      const Sharing& sharing = transfers_.sharing(*transfer, collective_);
      if (!transfer->seconds.is_same_for_all() || !sharing.first.is_same_for_all() ||
          !sharing.second.is_same_for_all()) {
        return false;
      }
      for (const auto& [message, unused] : times_) {
        if (is_message(*transfer) || !is_message(*message)) continue;
        if (!transfers_.pace_beside_two(*transfer, collective_, *message).is_same_for_all() ||
            !transfers_.pace_beside_two(collective_, *transfer, *message).is_same_for_all()) {
          return false;
        }
      }
    }
    return true;
  }

  // Beside the blocking transfers, and throughout beside `message` (null: none).
  double pace(size_t lane, const TransferTimes* message) const {
    const double base = message == nullptr ? 1 : transfers_.sharing(*message, collective_).second[lane];
    if (message != nullptr && base <= 1) return pace(lane, nullptr);
    std::vector<std::pair<double, double>> parts;  // pace, share of the collective's work
    for (const auto& [transfer, times] : times_) {
      if (is_message(*transfer) || count(times, lane) == 0) continue;
      const Sharing& with = transfers_.sharing(*transfer, collective_);
      double own = with.first[lane], pace = with.second[lane];
      if (message != nullptr) {
        own = transfers_.pace_beside_two(*transfer, collective_, *message)[lane];
        pace = transfers_.pace_beside_two(collective_, *transfer, *message)[lane];
      }
      if (pace <= base) continue;
      const double beside = count(times, lane) * transfer->seconds[lane] * own;
      parts.push_back({pace, beside / (collective_.seconds[lane] * pace)});
    }
    std::sort(parts.begin(), parts.end(), std::greater<>());
    double left = 1, out = base;
    for (const auto& [pace, wanted] : parts) {
      const double share = std::min(wanted, left);
      left -= share;
      out += share * (pace - base);
    }
    return out;
  }

  const TransferTimes& collective_;
  StageTransfers& transfers_;
  std::map<const TransferTimes*, std::vector<double>> times_;
};

// What the program has after op `from` of action `at`, a collective, until it is waited for.
void count_after(Counted& counted, const std::vector<PricedAction>& actions, size_t at, size_t from,
                 bool one_reduction_at_a_time) {
  double offset = 0;
  for (size_t i = at; i < actions.size(); ++i) {
    if (i > at && waits(actions[i].action, actions[at].action, one_reduction_at_a_time)) return;
    const std::vector<PricedOp>& ops = *actions[i].ops;
    for (size_t j = i == at ? from + 1 : 0; j < ops.size(); ++j) {
      if (ops[j].way == Way::dp) return;
      if (ops[j].way == Way::kernel) offset += ops[j].seconds;
      if (ops[j].transfer != nullptr && !counted.add(*ops[j].transfer, offset)) return;
    }
  }
}

}  // namespace

void add_crowding(std::vector<PricedAction>& actions, bool one_reduction_at_a_time,
                  StageTransfers& transfers) {
  std::vector<const TransferTimes*> sent;
  for (size_t i = 0; i < actions.size(); ++i) {
    std::vector<Crowding> crowding;
    for (size_t j = 0; j < actions[i].ops->size(); ++j) {
      const PricedOp& op = (*actions[i].ops)[j];
      if (op.way == Way::send && std::find(sent.begin(), sent.end(), op.transfer.get()) == sent.end()) {
        sent.push_back(op.transfer.get());
      }
      if (op.way != Way::dp) continue;
      Counted counted(*op.transfer, transfers);
      for (const TransferTimes* message : sent) counted.know(*message);
      if (is_queued(actions[i].action.kind)) count_after(counted, actions, i, j, one_reduction_at_a_time);
      crowding.resize(actions[i].ops->size());
      crowding[j] = counted.result();
    }
    const bool any = std::any_of(crowding.begin(), crowding.end(), [](const Crowding& c) {
      return c.pace.highest() > 1 || !c.messages.empty();
    });
    if (any) actions[i].crowding = std::make_shared<const std::vector<Crowding>>(std::move(crowding));
  }
}

double crowded_end(const Crowding& crowding, size_t lane, double start, double seconds,
                   const TransferTimes* sent, double until, std::vector<CrowdedPhase>& phases) {
  phases.clear();
  for (const Crowding::Messages& m : crowding.messages) {
    const double left = m.transfer == sent ? std::max(0.0, until - start) : 0;
    phases.push_back({m.pace[lane], m.seconds[lane] + left});
  }
  std::sort(phases.begin(), phases.end(), std::greater<>());
  double now = start, work = 1;
  for (const auto& [pace, lasts] : phases) {
    const double whole = seconds * pace;
    if (lasts >= work * whole) return now + work * whole;
    now += lasts;
    work -= lasts / whole;
  }
  return now + work * seconds * crowding.pace[lane];
}

}  // namespace lockstep::sim
