#include "sim/crowding.hpp"

#include <algorithm>
#include <functional>
#include <map>
#include <memory>
#include <tuple>
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
  using Times = std::map<const TransferTimes*, std::vector<double>>;

  // `latest`: the last message before it; null: none.
  Counted(const TransferTimes& collective, const TransferTimes* latest, StageTransfers& transfers)
      : collective_(collective), latest_(latest), transfers_(transfers) {
    if (latest != nullptr) times_of(*latest);
  }

  // False when kernels of `offset` seconds outlast the collective on every lane.
  bool add(const TransferTimes& transfer, double offset) {
    std::vector<double>* times = times_of(transfer);
    if (times == nullptr) return true;
    bool lasts = false;
    for (size_t lane = 0; lane < times->size(); ++lane) {
      if (offset >= collective_.seconds[lane]) continue;
      lasts = true;
      (*times)[lane] += 1;
    }
    return lasts;
  }

  const Times& times() const { return times_; }

  std::shared_ptr<const Crowding> result() const {
    auto out = std::make_shared<Crowding>();
    out->is_same_for_all = is_alike();
    const size_t lanes = out->is_same_for_all ? 1 : transfers_.lanes();
    out->pace = pace(lanes, nullptr);
    for (const auto& [transfer, times] : times_) {
      if (!is_message(*transfer)) continue;
      const PerLane& beside = transfers_.sharing(*transfer, collective_).first;
      std::vector<double> seconds;
      for (size_t lane = 0; lane < lanes; ++lane) {
        seconds.push_back(count(times, lane) * transfer->seconds[lane] * beside[lane]);
      }
      out->messages.push_back({transfer == latest_, pace(lanes, transfer), PerLane(std::move(seconds))});
    }
    return out;
  }

 private:
  static double count(const std::vector<double>& times, size_t lane) {
    return times[times.size() == 1 ? 0 : lane];
  }

  // Null where no link is in common.
  std::vector<double>* times_of(const TransferTimes& transfer) {
    if (!transfers_.sharing(transfer, collective_).in_common) return nullptr;
    std::vector<double>& times = times_[&transfer];
    times.resize(collective_.seconds.is_same_for_all() ? 1 : transfers_.lanes());
    return &times;
  }

  // Of `transfer` beside the collective and of the collective beside it, `message` (null: none) throughout.
  struct Paces {
    const PerLane& of_transfer;
    const PerLane& of_collective;
  };
  Paces paces(const TransferTimes& transfer, const TransferTimes* message) const {
    const Sharing& with = transfers_.sharing(transfer, collective_);
    if (message == nullptr) return {with.first, with.second};
    return {transfers_.pace_beside_two(transfer, collective_, *message),
            transfers_.pace_beside_two(collective_, transfer, *message)};
  }

  bool is_alike() const {
    const auto alike = [](const Paces& p) {
      return p.of_transfer.is_same_for_all() && p.of_collective.is_same_for_all();
    };
    if (!collective_.seconds.is_same_for_all()) return false;
    for (const auto& [transfer, times] : times_) {
      if (!transfer->seconds.is_same_for_all() || !alike(paces(*transfer, nullptr))) return false;
      for (const auto& [message, unused] : times_) {
        if (is_message(*message) && !is_message(*transfer) && !alike(paces(*transfer, message))) return false;
      }
    }
    return true;
  }

  // Beside the blocking transfers, and throughout beside `message` (null: none).
  PerLane pace(size_t lanes, const TransferTimes* message) const {
    struct Blocking {
      const TransferTimes& transfer;
      const std::vector<double>& times;
      Paces paces;
    };
    std::vector<Blocking> blocking;
    for (const auto& [transfer, times] : times_) {
      if (!is_message(*transfer)) blocking.push_back({*transfer, times, paces(*transfer, message)});
    }
    const PerLane alone = 1;
    const PerLane& base = message == nullptr ? alone : transfers_.sharing(*message, collective_).second;
    std::vector<double> out;
    std::vector<std::pair<double, double>> parts;  // pace, share of the collective's work
    for (size_t lane = 0; lane < lanes; ++lane) {
      parts.clear();
      for (const Blocking& b : blocking) {
        const double pace = b.paces.of_collective[lane];
        const double lasts = count(b.times, lane) * b.transfer.seconds[lane] * b.paces.of_transfer[lane];
        if (pace > base[lane]) parts.push_back({pace, lasts / (collective_.seconds[lane] * pace)});
      }
      out.push_back(mean_pace(parts, base[lane]));
    }
    return PerLane(std::move(out));
  }

  static double mean_pace(std::vector<std::pair<double, double>>& parts, double base) {
    std::sort(parts.begin(), parts.end(), std::greater<>());
    double left = 1, mean = base;
    for (const auto& [pace, wanted] : parts) {
      const double share = std::min(wanted, left);
      left -= share;
      mean += share * (pace - base);
    }
    return mean;
  }

  const TransferTimes& collective_;
  const TransferTimes* latest_;
  StageTransfers& transfers_;
  Times times_;
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
  // Most micro-batches' collectives have the same beside them.
  using Key = std::tuple<const TransferTimes*, const TransferTimes*, Counted::Times>;
  std::map<Key, std::shared_ptr<const Crowding>> known;
  const TransferTimes* latest = nullptr;
  for (size_t i = 0; i < actions.size(); ++i) {
    for (size_t j = 0; j < actions[i].ops->size(); ++j) {
      const PricedOp& op = (*actions[i].ops)[j];
      if (op.way == Way::send) latest = op.transfer.get();
      if (op.way != Way::dp) continue;
      Counted counted(*op.transfer, latest, transfers);
      if (is_queued(actions[i].action.kind)) count_after(counted, actions, i, j, one_reduction_at_a_time);
      if (counted.times().empty()) continue;
      std::shared_ptr<const Crowding>& crowding = known[{op.transfer.get(), latest, counted.times()}];
      if (crowding == nullptr) crowding = counted.result();
      actions[i].crowding.resize(actions[i].ops->size());
      actions[i].crowding[j] = crowding;
    }
  }
}

double crowded_end(const Crowding& crowding, size_t lane, double start, double seconds, double until,
                   std::vector<CrowdedPhase>& phases) {
  phases.clear();
  for (const Crowding::Messages& m : crowding.messages) {
    phases.push_back({m.pace[lane], m.seconds[lane] + (m.latest ? std::max(0.0, until - start) : 0)});
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
