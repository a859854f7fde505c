// What stages hand to each other while their lanes run: arrival times of messages, and the meeting of all
// stages, or of the first and the last, at a collective. Buffers are recycled.
#pragma once

#include <functional>
#include <map>
#include <mutex>
#include <optional>
#include <utility>
#include <vector>

namespace lockstep::sim {

// A message by its receiver: direction, chunk and micro-batch over there.
struct MessageKey {
  int stage = 0;
  bool forward = true;
  int chunk = 0;
  int micro_batch = 0;
  auto operator<=>(const MessageKey&) const = default;
};

class Exchange {
 public:
  Exchange(int stages, size_t lanes) : stages_(stages), lanes_(lanes) {}

  // From now on several threads use it, one a stage at a time. `arrived(stage)` is called when something has
  // come that the stage may wait for; with -1 it may be any. Empty: one thread again.
  void share(std::function<void(int stage)> arrived) { arrived_ = std::move(arrived); }

  size_t lanes() const { return lanes_; }
  std::vector<double> buffer();

  // Arrival times by lane. Throws RunError when the message is there already.
  void deliver(const MessageKey& key, std::vector<double> arrival);
  // Takes a message out; nothing when it has not been sent yet. Give the buffer back with `recycle`.
  std::optional<std::vector<double>> take(const MessageKey& key);
  // Throws RunError when a message was sent that nobody took.
  void check_empty() const;
  void recycle(std::vector<double> buffer);

  // The `occurrence`-th meeting of all stages, or of the two ends: each enters once with its lanes' times;
  // stage 0 says what the collective takes (`seconds`, else empty).
  struct MeetingKey {
    bool ends = false;  // of first and last stage alone
    int occurrence = 0;
    auto operator<=>(const MeetingKey&) const = default;
  };
  void enter(const MeetingKey& key, const std::vector<double>& clock, std::vector<double> seconds);
  struct Meeting {
    int entered = 0;
    std::vector<double> start;    // by lane: when the last stage was there
    std::vector<double> seconds;  // by lane: of the collective
  };
  // Null until all of them have entered; after that it does not change.
  const Meeting* meeting(const MeetingKey& key) const;

 private:
  std::unique_lock<std::mutex> lock() const {
    return arrived_ ? std::unique_lock(mutex_) : std::unique_lock<std::mutex>();
  }
  int wanted(const MeetingKey& key) const;

  int stages_;
  size_t lanes_;
  std::map<MessageKey, std::vector<double>> messages_;
  std::vector<std::vector<double>> free_;
  std::map<MeetingKey, Meeting> meetings_;
  std::function<void(int stage)> arrived_;  // empty: one thread
  mutable std::mutex mutex_;
};

}  // namespace lockstep::sim
