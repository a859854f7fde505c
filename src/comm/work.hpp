// Handle of an asynchronous operation.
#pragma once

#include <cstdint>
#include <memory>
#include <utility>

namespace lockstep::comm {

class WorkState {
 public:
  virtual ~WorkState() = default;
  virtual void wait() = 0;  // blocks; throws what the operation threw, every time it is called
  virtual bool done() = 0;  // finished or failed; makes progress where it can without blocking
  virtual int64_t finished_ns() const = 0;  // see Work
};

// A default-made handle is done. Dropping the handle of a collective or a send lets it run on; dropping that
// of a receive which has not come cancels the receive.
class Work {
 public:
  Work() = default;
  explicit Work(std::shared_ptr<WorkState> state) : state_(std::move(state)) {}
  // Of an operation that was over at once, at observe::monotonic_ns.
  static Work finished_at(int64_t ns) {
    Work work;
    work.finished_ns_ = ns;
    return work;
  }
  void wait() {
    if (state_) state_->wait();
  }
  bool done() const { return !state_ || state_->done(); }
  // When the operation ended, on the clock of observe::monotonic_ns: a send when its data was copied out, a
  // receive when its data was in place, which some thread of this rank must have looked for (by a wait or a
  // done). 0 before, without an operation, and for a receive that failed.
  int64_t finished_ns() const { return state_ ? state_->finished_ns() : finished_ns_; }

 private:
  int64_t finished_ns_ = 0;  // without a state
  std::shared_ptr<WorkState> state_;
};

}  // namespace lockstep::comm
