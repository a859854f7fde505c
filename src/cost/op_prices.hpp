// What the ops of a step program cost on the modelled cluster. Planner and simulator take every price here,
// so that they differ only in how they put ops together.
#pragma once

#include "cluster/hardware.hpp"
#include "config/run_file.hpp"
#include "model/op.hpp"

namespace lockstep::cost {

class OpPrices {
 public:
  // `run` has passed config's rules.
  explicit OpPrices(const config::RunFile& run);

  const cluster::Hardware& hardware() const { return hardware_; }

  // Seconds of an op on the compute or host stream. With data.prefetch a batch was read during the step
  // before, and a host op is what is left: to copy its bytes; else it is read first. Throws invalid_argument
  // for communication.
  double kernel_seconds(const model::Op& op) const;

 private:
  cluster::Hardware hardware_;
  double read_latency_ = 0, read_seconds_per_byte_ = 0;  // of a batch that has to be waited for
};

constexpr bool is_kernel(model::OpKind kind) {
  return kind == model::OpKind::gemm || kind == model::OpKind::attention || kind == model::OpKind::memory ||
         kind == model::OpKind::host;
}

}  // namespace lockstep::cost
