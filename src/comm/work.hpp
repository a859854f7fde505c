// Handle of an asynchronous operation.
#pragma once

#include <cstdint>
#include <memory>
#include <utility>

namespace lockstep::comm {

class WorkState {
 public:
  virtual ~WorkState() = default;
  virtual void wait() = 0;                 // blocks; throws what the operation threw, every time it is called
  virtual bool done() = 0;                 // finished or failed; makes progress where it can without blocking
  virtual int64_t started_ns() const = 0;  // see Work, as the next two
  virtual int64_t finished_ns() const = 0;
  virtual int64_t sent_ns() const { return 0; }
};

// A default-made handle is done. Dropping the handle of a collective or a send lets it run on; dropping that
// of a receive which has not come cancels the receive.
class Work {
 public:
  Work() = default;
  explicit Work(std::shared_ptr<WorkState> state) : state_(std::move(state)) {}
  // Of an operation that is over, with its times on the clock of observe::monotonic_ns.
  static Work over(int64_t started_ns, int64_t finished_ns) {
    Work work;
    work.started_ns_ = started_ns;
    work.finished_ns_ = finished_ns;
    return work;
  }
  void wait() {
    if (state_) state_->wait();
  }
  bool done() const { return !state_ || state_->done(); }
  // When the operation really began, on the clock of observe::monotonic_ns: a collective when the thread that
  // runs it took it up, not when it was queued behind others; a send when its copying began; a receive when
  // it was posted. 0 before, and without an operation.
  int64_t started_ns() const { return state_ ? state_->started_ns() : started_ns_; }
  // When the operation ended, on the clock of observe::monotonic_ns: a send when its data was copied out, a
  // receive when its data was in place, which some thread of this rank must have looked for (by a wait or a
  // done). 0 before, without an operation, and for a receive that failed.
  int64_t finished_ns() const { return state_ ? state_->finished_ns() : finished_ns_; }
  // Of a receive whose data is in place: when its sender began to send, the sender's started_ns (all ranks of
  // one machine share the clock). A message moves into its place only when its receiver looks, so it was
  // under way from the later of started_ns and sent_ns to finished_ns. 0 before, and of anything else.
  int64_t sent_ns() const { return state_ ? state_->sent_ns() : 0; }

 private:
  int64_t started_ns_ = 0, finished_ns_ = 0;  // without a state
  std::shared_ptr<WorkState> state_;
};

}  // namespace lockstep::comm
