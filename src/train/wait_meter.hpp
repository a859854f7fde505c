// Where a step's time went that computation did not hide, by communication axis.
#pragma once

#include "nn/op_log.hpp"
#include "observe/span.hpp"
#include "observe/step_record.hpp"

namespace lockstep::train {

class WaitMeter {
 public:
  explicit WaitMeter(nn::OpLog* log) : log_(log) {}

  void begin_step() { waits_ = {}; }
  observe::StepWaits& waits() { return waits_; }

  // Calls `wait` and books its time as exposed on an axis (ExposedSeconds::pp, say); while the log records it
  // becomes a span on the stream of exposed time. `name`: static storage.
  template <class F>
  void wait(const char* name, double observe::ExposedSeconds::*axis, int chunk, int micro_batch, F&& wait) {
    const int64_t start = observe::monotonic_ns();
    wait();
    const int64_t end = observe::monotonic_ns();
    waits_.exposed.*axis += seconds(end - start);
    if (log_ != nullptr) log_->add({name, nn::Stream::exposed, 0, start, end, chunk, micro_batch});
  }

  static double seconds(int64_t ns) { return static_cast<double>(ns) * 1e-9; }

 private:
  nn::OpLog* log_;
  observe::StepWaits waits_;
};

}  // namespace lockstep::train
