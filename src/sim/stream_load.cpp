#include "sim/stream_load.hpp"

#include <algorithm>

namespace lockstep::sim {

double end_beside(double start, double seconds, double pace, double until) {
  if (until <= start || pace <= 1) return start + seconds;
  return start + seconds + (1 - 1 / pace) * std::min(seconds * pace, until - start);
}

StreamLoad::StreamLoad(StageTransfers* transfers, size_t lanes, double slowdown)
    : transfers_(transfers), slowdown_(slowdown), sent_(lanes) {}

const Sharing* StreamLoad::sharing(const TransferTimes& first, const TransferTimes& second) const {
  if (transfers_ == nullptr) return nullptr;
  const Sharing& found = transfers_->sharing(first, second);
  return found.any ? &found : nullptr;
}

void StreamLoad::queue(std::shared_ptr<const QueuedCollective> collective) {
  live_.push_back(collective);
  last_ = std::move(collective);
}

const Sharing* StreamLoad::with_messages(const TransferTimes& collective) const {
  return message_ == nullptr ? nullptr : sharing(collective, *message_);
}

double StreamLoad::collective_end(size_t lane, double start, double seconds, const Sharing* with) const {
  return with == nullptr ? start + seconds : end_beside(start, seconds, with->first[lane], sent_[lane]);
}

void StreamLoad::send(std::shared_ptr<const TransferTimes> transfer, std::vector<double>& ready,
                      const std::vector<double>& seconds, const std::vector<double>& lost,
                      std::vector<double>& arrival) {
  Beside beside = this->beside(*transfer);
  beside.message = nullptr;  // messages follow one another
  const bool shared = std::any_of(beside.collectives.begin(), beside.collectives.end(),
                                  [](const Sharing* s) { return s != nullptr; });
  for (size_t lane = 0; lane < ready.size(); ++lane) {
    ready[lane] = std::max(ready[lane], sent_[lane]);
    arrival[lane] = ready[lane] + seconds[lane];
  }
  if (shared) {
    for (size_t lane = 0; lane < ready.size(); ++lane) {
      arrival[lane] = transfer_end(lane, ready[lane], seconds[lane], beside);
    }
  }
  for (size_t lane = 0; lane < lost.size(); ++lane) arrival[lane] += lost[lane];
  std::copy(arrival.begin(), arrival.end(), sent_.begin());
  message_ = std::move(transfer);
}

void StreamLoad::forget(double lowest_clock) {
  std::erase_if(live_, [&](const auto& queued) {
    return *std::max_element(queued->end.begin(), queued->end.end()) <= lowest_clock;
  });
}

StreamLoad::Beside StreamLoad::beside(const TransferTimes& transfer) const {
  Beside out;
  for (const auto& queued : live_) out.collectives.push_back(sharing(transfer, *queued->transfer));
  if (message_ != nullptr) out.message = sharing(transfer, *message_);
  out.any = out.message != nullptr || std::any_of(out.collectives.begin(), out.collectives.end(),
                                                  [](const Sharing* s) { return s != nullptr; });
  return out;
}

std::vector<const TransferTimes*> StreamLoad::present() const {
  std::vector<const TransferTimes*> out;
  for (const auto& queued : live_) out.push_back(queued->transfer.get());
  out.push_back(message_.get());
  return out;
}

double StreamLoad::busy_until(size_t first, size_t last) const {
  const auto latest = [&](const std::vector<double>& ends) {
    return *std::max_element(ends.begin() + static_cast<std::ptrdiff_t>(first),
                             ends.begin() + static_cast<std::ptrdiff_t>(last));
  };
  double until = latest(sent_);
  for (const auto& queued : live_) until = std::max(until, latest(queued->end));
  return until;
}

double StreamLoad::kernel_end(size_t lane, double start, double seconds) const {
  double until = sent_[lane];
  for (const auto& queued : live_) until = std::max(until, queued->end[lane]);
  return end_beside(start, seconds, 1 + slowdown_, until);
}

double StreamLoad::transfer_end(size_t lane, double start, double seconds, const Beside& beside) const {
  double end = start + seconds;
  for (size_t i = 0; i < live_.size(); ++i) {
    const Sharing* with = beside.collectives[i];
    if (with == nullptr) continue;
    end = std::max(end, end_beside(start, seconds, with->first[lane], live_[i]->end[lane]));
  }
  if (beside.message != nullptr) {
    end = std::max(end, end_beside(start, seconds, beside.message->first[lane], sent_[lane]));
  }
  return end;
}

}  // namespace lockstep::sim
