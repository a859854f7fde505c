#include "parallel/schedule.hpp"

#include <algorithm>
#include <optional>
#include <stdexcept>

#include "base/error.hpp"

namespace lockstep::parallel {

namespace {

// Order of one pass over all chunks of a rank: groups of up to `stages` micro-batches visit chunk after
// chunk.
std::vector<Slot> pass_order(Pass pass, int stages, int virtual_stages, int micro_batches) {
  std::vector<Slot> order;
  order.reserve(static_cast<size_t>(virtual_stages) * static_cast<size_t>(micro_batches));
  for (int group = 0; group < micro_batches; group += stages) {
    const int end = std::min(group + stages, micro_batches);
    for (int v = 0; v < virtual_stages; ++v) {
      const int chunk = pass == Pass::forward ? v : virtual_stages - 1 - v;
      for (int mb = group; mb < end; ++mb) order.push_back({pass, chunk, mb});
    }
  }
  return order;
}

// `warmup` forwards, then one forward and one backward in turn, then the backwards that are left.
std::vector<Slot> one_f_one_b(const std::vector<Slot>& forwards, const std::vector<Slot>& backwards,
                              int warmup) {
  const size_t total = forwards.size();
  const size_t ahead = std::min(static_cast<size_t>(warmup), total);
  std::vector<Slot> slots(forwards.begin(), forwards.begin() + static_cast<std::ptrdiff_t>(ahead));
  slots.reserve(2 * total);
  for (size_t i = ahead; i < total; ++i) {
    slots.push_back(forwards[i]);
    slots.push_back(backwards[i - ahead]);
  }
  for (size_t i = total - ahead; i < total; ++i) slots.push_back(backwards[i]);
  return slots;
}

// Forwards before the first backward, beyond which one follows the other.
int warmup_forwards(config::ScheduleKind kind, int stages, int virtual_stages, int micro_batches, int rank) {
  if (kind == config::ScheduleKind::gpipe) return virtual_stages * micro_batches;
  if (virtual_stages == 1) return stages - 1 - rank;
  const int group = std::min(stages, micro_batches);
  return (virtual_stages - 1) * group + 2 * (stages - 1 - rank);
}

Schedule with_extra_warmup(config::ScheduleKind kind, int stages, int virtual_stages, int micro_batches,
                           int extra) {
  Schedule schedule{stages, virtual_stages, micro_batches, {}};
  const auto forwards = pass_order(Pass::forward, stages, virtual_stages, micro_batches);
  const auto backwards = pass_order(Pass::backward, stages, virtual_stages, micro_batches);
  for (int rank = 0; rank < stages; ++rank) {
    const int warmup = warmup_forwards(kind, stages, virtual_stages, micro_batches, rank) + extra;
    schedule.ranks.push_back(one_f_one_b(forwards, backwards, warmup));
  }
  return schedule;
}

// One rank: a micro-batch goes through all chunks and back before the next one starts.
Schedule depth_first(int virtual_stages, int micro_batches) {
  Schedule schedule{1, virtual_stages, micro_batches, {{}}};
  for (int mb = 0; mb < micro_batches; ++mb) {
    for (int c = 0; c < virtual_stages; ++c) schedule.ranks[0].push_back({Pass::forward, c, mb});
    for (int c = virtual_stages; c-- > 0;) schedule.ranks[0].push_back({Pass::backward, c, mb});
  }
  return schedule;
}

// Zero-bubble H1, made by letting time run in steps of one pass, all of them taken as equally long: forwards
// and input gradients come in 1F1B's order; where the next of them has to wait, or would hold more
// micro-batches than 1F1B's first stage does, a weight gradient is computed.
class ZeroBubble {
 public:
  ZeroBubble(int stages, int micro_batches)
      : stages_(stages), micro_batches_(micro_batches), ranks_(static_cast<size_t>(stages)) {
    const auto forwards = pass_order(Pass::forward, stages, 1, micro_batches);
    const auto backwards = pass_order(Pass::backward_input, stages, 1, micro_batches);
    for (int rank = 0; rank < stages; ++rank) {
      order_.push_back(one_f_one_b(forwards, backwards, stages - 1 - rank));
    }
  }

  Schedule build() {
    Schedule schedule{stages_, 1, micro_batches_, std::vector<std::vector<Slot>>(ranks_.size())};
    for (size_t left = ranks_.size() * static_cast<size_t>(3 * micro_batches_); left > 0;) {
      std::vector<Progress> next = ranks_;  // what is done in this step counts from the next one on
      for (size_t r = 0; r < ranks_.size(); ++r) {
        if (const auto slot = choose(r)) {
          schedule.ranks[r].push_back(*slot);
          next[r].done(slot->pass) += 1;
          --left;
        }
      }
      ranks_ = std::move(next);
    }
    return schedule;
  }

 private:
  struct Progress {
    int forward = 0, input = 0, weight = 0;  // passes done, in ascending micro-batch
    int& done(Pass pass) {
      return pass == Pass::forward ? forward : pass == Pass::backward_input ? input : weight;
    }
  };

  bool ready(size_t r, const Slot& slot) const {
    const Progress& own = ranks_[r];
    if (slot.pass == Pass::backward_input) {
      return slot.micro_batch < (r + 1 == ranks_.size() ? own.forward : ranks_[r + 1].input);
    }
    const bool room = own.forward - own.weight < stages_;
    return room && slot.micro_batch < (r == 0 ? micro_batches_ : ranks_[r - 1].forward);
  }

  std::optional<Slot> choose(size_t r) const {
    const Progress& own = ranks_[r];
    const auto next = static_cast<size_t>(own.forward + own.input);
    if (next < order_[r].size() && ready(r, order_[r][next])) return order_[r][next];
    if (own.weight < own.input) return Slot{Pass::backward_weight, 0, own.weight};
    return std::nullopt;
  }

  int stages_, micro_batches_;
  std::vector<std::vector<Slot>> order_;  // of forwards and input gradients, by rank
  std::vector<Progress> ranks_;
};

// Tracks when a micro-batch's forward or backward of each model chunk is done. Negative: not yet.
class Finished {
 public:
  explicit Finished(const Schedule& s)
      : micro_batches_(s.micro_batches),
        chunks_(s.chunks()),
        times_(3 * static_cast<size_t>(s.chunks()) * static_cast<size_t>(s.micro_batches), -1.0) {}

  double& at(Pass pass, int global_chunk, int micro_batch) {
    const int kind = pass == Pass::forward ? 0 : pass == Pass::backward_weight ? 2 : 1;
    const size_t row = static_cast<size_t>(kind * chunks_ + global_chunk);
    return times_[row * static_cast<size_t>(micro_batches_) + static_cast<size_t>(micro_batch)];
  }
  // When the input of a slot is there; negative: not yet.
  double input(const Slot& slot, int global_chunk) {
    if (slot.pass == Pass::forward) {
      return global_chunk == 0 ? 0.0 : at(Pass::forward, global_chunk - 1, slot.micro_batch);
    }
    if (slot.pass == Pass::backward_weight) return at(Pass::backward, global_chunk, slot.micro_batch);
    if (global_chunk == chunks_ - 1) return at(Pass::forward, global_chunk, slot.micro_batch);
    return at(Pass::backward, global_chunk + 1, slot.micro_batch);
  }

 private:
  int micro_batches_;
  int chunks_;
  std::vector<double> times_;
};

PassSeconds unit_seconds(const Schedule& s) {
  const std::vector<double> ones(static_cast<size_t>(s.chunks()), 1.0);
  return {ones, ones, ones};
}

// False when the computations wait in a circle.
bool simulate_slots(const Schedule& s, const PassSeconds& seconds, std::vector<std::vector<double>>& starts) {
  Finished finished(s);
  std::vector<double> clock(static_cast<size_t>(s.stages), 0.0);
  starts.assign(static_cast<size_t>(s.stages), {});
  for (bool moved = true; moved;) {
    moved = false;
    for (int rank = 0; rank < s.stages; ++rank) {
      const size_t r = static_cast<size_t>(rank);
      while (starts[r].size() < s.ranks[r].size()) {
        const Slot& slot = s.ranks[r][starts[r].size()];
        const int chunk = s.global_chunk(rank, slot.chunk);
        const double ready = finished.input(slot, chunk);
        if (ready < 0) break;
        const double start = std::max(ready, clock[r]);
        clock[r] = start + seconds.of(slot.pass, static_cast<size_t>(chunk));
        finished.at(slot.pass, chunk, slot.micro_batch) = clock[r];
        starts[r].push_back(start);
        moved = true;
      }
    }
  }
  for (size_t r = 0; r < starts.size(); ++r) {
    if (starts[r].size() != s.ranks[r].size()) return false;
  }
  return true;
}

}  // namespace

Schedule build_schedule(config::ScheduleKind kind, int stages, int virtual_stages, int micro_batches) {
  if (stages < 1 || virtual_stages < 1 || micro_batches < 1) {
    throw std::invalid_argument("a schedule needs at least one stage, one chunk and one micro-batch");
  }
  if (kind != config::ScheduleKind::interleaved && virtual_stages > 1) {
    throw std::invalid_argument("several chunks of a rank need the interleaved schedule");
  }
  if (kind == config::ScheduleKind::zero_bubble_h1) return ZeroBubble(stages, micro_batches).build();
  if (stages == 1 && virtual_stages > 1) return depth_first(virtual_stages, micro_batches);
  // A last group smaller than the others can need more forwards ahead than the formula gives; with all of
  // them ahead the order is GPipe's, which never waits in a circle, so this ends.
  std::vector<std::vector<double>> starts;
  for (int extra = 0;; ++extra) {
    Schedule schedule = with_extra_warmup(kind, stages, virtual_stages, micro_batches, extra);
    if (simulate_slots(schedule, unit_seconds(schedule), starts)) return schedule;
    if (extra > virtual_stages * micro_batches) throw std::logic_error("no warm-up makes this schedule run");
  }
}

std::vector<std::vector<double>> slot_starts(const Schedule& schedule) {
  return slot_starts(schedule, unit_seconds(schedule));
}

std::vector<std::vector<double>> slot_starts(const Schedule& schedule, const PassSeconds& seconds) {
  std::vector<std::vector<double>> starts;
  if (!simulate_slots(schedule, seconds, starts)) {
    throw RunError("this schedule never ends: its computations wait for each other in a circle");
  }
  return starts;
}

double pipeline_window(const Schedule& schedule, const PassSeconds& seconds) {
  const auto starts = slot_starts(schedule, seconds);
  double end = 0;
  for (int rank = 0; rank < schedule.stages; ++rank) {
    const auto r = static_cast<size_t>(rank);
    if (starts[r].empty()) continue;
    const Slot& last = schedule.ranks[r].back();
    const auto chunk = static_cast<size_t>(schedule.global_chunk(rank, last.chunk));
    end = std::max(end, starts[r].back() + seconds.of(last.pass, chunk));
  }
  return end;
}

int peak_live(const Schedule& schedule, int rank) {
  int live = 0;
  int peak = 0;
  for (const Slot& slot : schedule.ranks[static_cast<size_t>(rank)]) {
    if (slot.pass == Pass::forward) ++live;
    if (slot.pass == Pass::backward || slot.pass == Pass::backward_weight) --live;
    peak = std::max(peak, live);
  }
  return peak;
}

}  // namespace lockstep::parallel
