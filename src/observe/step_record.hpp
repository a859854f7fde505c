// One training step's figures, and the line a person reads.
#pragma once

#include <cstdint>
#include <string>

namespace lockstep::observe {

struct StepRecord {
  int64_t step = 0;  // 1 is the first
  int64_t steps = 0;
  double loss = 0;  // nats a token, mean over the global batch
  double grad_norm = 0;
  double lr = 0;
  int64_t tokens = 0;        // of this step, over all workers
  double seconds = 0;        // wall time of this step
  int64_t memory_bytes = 0;  // resident, of the fullest worker
  double tokens_per_second = 0;
  double tflops = 0;       // per worker, 1e12 FLOP/s
  double mfu = 0;          // a fraction; NaN when the peak is not known
  double eta_seconds = 0;  // to the end of the run
};

// One line:
// "step 12/200  loss 3.4120  grad_norm 0.81  lr 2.9e-04  mem 1.2GiB  tps 5,410  tflops 0.13  mfu 21.4%  eta
// 0:03:12" A tps or mfu that is not finite shows as "?".
std::string step_line(const StepRecord& record);

}  // namespace lockstep::observe
