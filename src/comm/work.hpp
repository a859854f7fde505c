// Handle of an asynchronous operation.
#pragma once

#include <memory>

namespace lockstep::comm {

class WorkState {
 public:
  virtual ~WorkState() = default;
  virtual void wait() = 0;  // blocks; throws what the operation threw, every time it is called
  virtual bool done() = 0;  // finished or failed; makes progress where it can without blocking
};

// A default-made handle is done. Dropping the handle of a collective or a send lets it run on; dropping that
// of a receive which has not come cancels the receive.
class Work {
 public:
  Work() = default;
  explicit Work(std::shared_ptr<WorkState> state) : state_(std::move(state)) {}
  void wait() {
    if (state_) state_->wait();
  }
  bool done() const { return !state_ || state_->done(); }

 private:
  std::shared_ptr<WorkState> state_;
};

}  // namespace lockstep::comm
