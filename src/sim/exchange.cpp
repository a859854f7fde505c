#include "sim/exchange.hpp"

#include <algorithm>
#include <string>
#include <utility>

#include "base/error.hpp"

namespace lockstep::sim {

namespace {

std::string describe(const MessageKey& key) {
  return "stage " + std::to_string(key.stage) + " is sent the " +
         (key.forward ? "hidden state" : "gradient") + " of chunk " + std::to_string(key.chunk) +
         ", micro-batch " + std::to_string(key.micro_batch);
}

}  // namespace

std::vector<double> Exchange::buffer() {
  const auto held = lock();
  if (free_.empty()) return std::vector<double>(lanes_);
  std::vector<double> out = std::move(free_.back());
  free_.pop_back();
  return out;
}

void Exchange::recycle(std::vector<double> buffer) {
  const auto held = lock();
  free_.push_back(std::move(buffer));
}

void Exchange::deliver(const MessageKey& key, std::vector<double> arrival) {
  {
    const auto held = lock();
    if (!messages_.emplace(key, std::move(arrival)).second) throw RunError(describe(key) + " twice");
  }
  if (arrived_) arrived_(key.stage);
}

void Exchange::check_empty() const {
  if (messages_.empty()) return;
  throw RunError(describe(messages_.begin()->first) + " and never receives it");
}

std::optional<std::vector<double>> Exchange::take(const MessageKey& key) {
  const auto held = lock();
  const auto found = messages_.find(key);
  if (found == messages_.end()) return std::nullopt;
  std::vector<double> out = std::move(found->second);
  messages_.erase(found);
  return out;
}

void Exchange::enter(const MeetingKey& key, const std::vector<double>& clock, std::vector<double> seconds) {
  bool complete = false;
  {
    const auto held = lock();
    Meeting& m = meetings_[key];
    if (!seconds.empty()) m.seconds = std::move(seconds);
    if (m.entered++ == 0) {
      m.start = clock;
    } else {
      for (size_t i = 0; i < lanes_; ++i) m.start[i] = std::max(m.start[i], clock[i]);
    }
    complete = m.entered == wanted(key);
  }
  if (complete && arrived_) arrived_(-1);
}

int Exchange::wanted(const MeetingKey& key) const { return key.ends ? std::min(stages_, 2) : stages_; }

const Exchange::Meeting* Exchange::meeting(const MeetingKey& key) const {
  const auto held = lock();
  const auto found = meetings_.find(key);
  return found != meetings_.end() && found->second.entered == wanted(key) ? &found->second : nullptr;
}

}  // namespace lockstep::sim
