#include "sim/run_stages.hpp"

#include <algorithm>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <exception>
#include <mutex>
#include <string>
#include <system_error>
#include <thread>

#include "base/error.hpp"

namespace lockstep::sim {

namespace {

// Hands stages out to threads.
class Turns {
 public:
  explicit Turns(std::vector<StageRun>& stages) : stages_(stages), states_(stages.size(), State::queued) {
    for (size_t s = 0; s < stages.size(); ++s) queue_.push_back(s);
  }

  // Something has come for this stage; -1: for any.
  void wake(int stage) {
    const std::lock_guard held(mutex_);
    if (stage >= 0) return wake_one(static_cast<size_t>(stage));
    for (size_t s = 0; s < stages_.size(); ++s) wake_one(s);
  }

  // Until no stage can go on.
  void work() {
    std::unique_lock held(mutex_);
    while (true) {
      changed_.wait(held, [this] { return !queue_.empty() || running_ == 0; });
      if (queue_.empty()) return;
      const size_t stage = queue_.front();
      queue_.pop_front();
      states_[stage] = State::running;
      ++running_;
      held.unlock();
      const std::exception_ptr failed = advance(stage);
      held.lock();
      --running_;
      const bool again = states_[stage] == State::woken;
      states_[stage] = State::waits;
      if (failed && !failure_) failure_ = failed;
      if (failure_) queue_.clear();
      if (again) wake_one(stage);
      if (queue_.empty() && running_ == 0) changed_.notify_all();
    }
  }

  void check() const {
    if (failure_) std::rethrow_exception(failure_);
  }

 private:
  enum class State : uint8_t { waits, queued, running, woken };  // woken: while it ran

  std::exception_ptr advance(size_t stage) {
    try {
      stages_[stage].advance();
      return nullptr;
    } catch (...) {
      return std::current_exception();
    }
  }

  void wake_one(size_t stage) {
    State& state = states_[stage];
    if (state == State::running) state = State::woken;
    if (state != State::waits || failure_) return;
    state = State::queued;
    queue_.push_back(stage);
    changed_.notify_one();
  }

  std::vector<StageRun>& stages_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<State> states_;
  std::deque<size_t> queue_;
  int running_ = 0;
  std::exception_ptr failure_;
};

void run_on_threads(std::vector<StageRun>& stages, Exchange& exchange, int threads) {
  Turns turns(stages);
  exchange.share([&turns](int stage) { turns.wake(stage); });
  {
    std::vector<std::jthread> others;
    try {
      for (int t = 1; t < threads; ++t) others.emplace_back([&turns] { turns.work(); });
    } catch (const std::system_error&) {
      // As many as the machine grants.
    }
    turns.work();
  }
  exchange.share({});
  turns.check();
}

void run_in_turn(std::vector<StageRun>& stages) {
  for (bool moved = true; moved;) {
    moved = false;
    for (StageRun& stage : stages) moved = stage.advance() || moved;
  }
}

}  // namespace

void run_to_end(std::vector<StageRun>& stages, Exchange& exchange, int threads) {
  threads = std::min(threads, static_cast<int>(stages.size()));
  if (threads > 1) {
    run_on_threads(stages, exchange, threads);
  } else {
    run_in_turn(stages);
  }
  std::string stuck;
  for (const StageRun& stage : stages) {
    if (!stage.done()) stuck += (stuck.empty() ? "" : "; ") + stage.where();
  }
  if (!stuck.empty()) throw RunError("the programs wait for what never comes: " + stuck);
  for (StageRun& stage : stages) stage.finish();
  exchange.check_empty();
}

}  // namespace lockstep::sim
