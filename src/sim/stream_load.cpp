#include "sim/stream_load.hpp"

#include <algorithm>
#include <utility>

#include "sim/lane_loops.hpp"

namespace lockstep::sim {

double end_beside_two(double start, double seconds, double both, Slower first, Slower last) {
  if (first.until > last.until) std::swap(first, last);
  if (first.until > start) {
    const double together = first.until - start;
    if (seconds * both <= together) return start + seconds * both;
    seconds -= together / both;
    start = first.until;
  }
  return end_beside(start, seconds, last.pace, last.until);
}

StreamLoad::StreamLoad(const LaneGrid& grid, StageTransfers* transfers, double slowdown)
    : grid_(grid), transfers_(transfers), slowdown_(slowdown), sent_(static_cast<size_t>(grid.lanes())) {}

const Sharing* StreamLoad::sharing(const TransferTimes& first, const TransferTimes& second) const {
  if (transfers_ == nullptr) return nullptr;
  const Sharing& found = transfers_->sharing(first, second);
  return found.in_common ? &found : nullptr;
}

void StreamLoad::queue(std::shared_ptr<const QueuedCollective> collective) {
  live_.push_back(collective);
  last_ = std::move(collective);
}

double StreamLoad::collective_end(int row, double start, double seconds, const Crowding* crowding) {
  if (crowding == nullptr) return start + seconds;
  const auto end_at = [&](size_t lane, double until) {
    return crowded_end(*crowding, lane, start, seconds, until, phases_);
  };
  double until = 0, end = 0;
  for (const Tile& tile : grid_.tiles()) {
    const size_t first = tile.row(row), width = static_cast<size_t>(tile.width);
    until = std::max(until, highest(sent_.data() + first, width));
    if (crowding->is_same_for_all) continue;
    for (size_t lane = first; lane < first + width; ++lane) end = std::max(end, end_at(lane, sent_[lane]));
  }
  // Where lanes differ in their messages alone, the one whose messages are gone last is last.
  return crowding->is_same_for_all ? end_at(static_cast<size_t>(grid_.lane(row, 0)), until) : end;
}

void StreamLoad::send(std::shared_ptr<const TransferTimes> transfer, std::vector<double>& ready,
                      const std::vector<double>& seconds, const std::vector<double>& lost,
                      std::vector<double>& arrival) {
  start_after(ready.data(), arrival.data(), ready.size(), sent_.data(), seconds.data());
  for (const auto& queued : live_) {
    const Sharing* with = sharing(*transfer, *queued->transfer);
    if (with == nullptr || with->first.highest() <= 1) continue;
    for (const Tile& tile : grid_.tiles()) {
      for (int row = 0; row < grid_.tp(); ++row) {
        const size_t first = tile.row(row);
        delay_beside(arrival.data() + first, static_cast<size_t>(tile.width), ready.data() + first,
                     seconds.data() + first, values_from(with->first, first),
                     {nullptr, queued->end[static_cast<size_t>(row)]});
      }
    }
  }
  for (size_t lane = 0; lane < lost.size(); ++lane) arrival[lane] += lost[lane];
  std::copy(arrival.begin(), arrival.end(), sent_.begin());
  message_ = std::move(transfer);
}

void StreamLoad::forget(const std::vector<double>& clocks) {
  if (live_.empty()) return;
  const double now = lowest(clocks);
  std::erase_if(live_, [&](const auto& queued) { return queued->last_end <= now; });
}

StreamLoad::Beside StreamLoad::beside(const TransferTimes& transfer) const {
  Beside out;
  const auto pace = [&](const TransferTimes& other) {
    const Sharing* found = sharing(transfer, other);
    return found == nullptr ? nullptr : &found->first;
  };
  if (message_ != nullptr) out.message = pace(*message_);
  out.any = out.message != nullptr && out.message->highest() > 1;
  for (const auto& queued : live_) {
    const PerLane* alone = pace(*queued->transfer);
    const PerLane* both = alone == nullptr || message_ == nullptr
                              ? alone
                              : &transfers_->pace_beside_two(transfer, *queued->transfer, *message_);
    out.collectives.push_back({alone, both});
    out.any = out.any || (both != nullptr && both->highest() > 1);
  }
  return out;
}

void StreamLoad::add_present(std::vector<const void*>& out) const {
  for (const auto& queued : live_) out.push_back(queued->transfer.get());
  out.push_back(message_.get());
}

double StreamLoad::busy_until(const Tile& tile) const {
  double until = highest(sent_.data() + tile.first_lane, static_cast<size_t>(grid_.tp() * tile.width));
  for (const auto& queued : live_) until = std::max(until, queued->last_end);
  return until;
}

void StreamLoad::collectives_end(std::vector<double>& by_row) const {
  by_row.assign(static_cast<size_t>(grid_.tp()), 0.0);
  for (const auto& queued : live_) {
    for (size_t row = 0; row < by_row.size(); ++row) by_row[row] = std::max(by_row[row], queued->end[row]);
  }
}

double StreamLoad::transfer_end(size_t lane, int row, double start, double seconds,
                                const Beside& beside) const {
  const double message_pace = beside.message == nullptr ? 1 : (*beside.message)[lane];
  double end = end_beside(start, seconds, message_pace, sent_[lane]);
  for (size_t i = 0; i < live_.size(); ++i) {
    const auto& [without_message, with_message] = beside.collectives[i];
    if (without_message == nullptr) continue;
    const Slower collective{(*without_message)[lane], live_[i]->end[static_cast<size_t>(row)]};
    end = std::max(
        end, end_beside_two(start, seconds, (*with_message)[lane], collective, {message_pace, sent_[lane]}));
  }
  return end;
}

}  // namespace lockstep::sim
