// One training step's figures, and the line a person reads.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace lockstep::observe {

// Seconds of one step by communication axis. `exposed`: what a worker's compute thread spent waiting
// (collectives of tp and cp block, so all their time; pp: receives, sends and the all-reduce over stages; dp:
// gradient scatters and parameter gathers). `under_way`: how long communication ran, hidden or not.
struct ExposedSeconds {
  double tp = 0, cp = 0, pp = 0, dp = 0;

  double total() const { return tp + cp + pp + dp; }
  ExposedSeconds& operator+=(const ExposedSeconds& more);
  bool operator==(const ExposedSeconds&) const = default;
};

struct StepWaits {
  ExposedSeconds exposed, under_way;

  bool operator==(const StepWaits&) const = default;
};

struct StepRecord {
  int64_t step = 0;  // 1 is the first
  int64_t steps = 0;
  double loss = 0;  // nats a token, mean over the global batch
  double grad_norm = 0;
  double lr = 0;
  int64_t tokens = 0;  // trained in this step, over all workers: those that divide the loss
  double seconds = 0;  // wall time of this step, without evaluations
  // The most that a worker was resident since it started: of the fullest worker, or rank 0's own where some
  // rank's WaitMessage never came.
  int64_t memory_bytes = 0;
  double tokens_per_second = 0;
  double tflops = 0;  // per worker, 1e12 FLOP/s
  // Fractions of the machine's measured matrix peak, see MatrixPeak; NaN when it is not known. `mfu` counts
  // attention as if full (PaLM, arXiv:2204.02311, appendix B), `mfu_causal` half of it.
  double mfu = 0;
  double mfu_causal = 0;
  double eta_seconds = 0;            // to the end of the run
  bool skipped = false;              // it met NaN or infinity, and the weights stayed as they were
  std::string trouble = {};          // of a skipped step: layer, op and rank
  std::optional<StepWaits> waits{};  // mean over ranks; none when some rank's never came
};

// The fastest matrix product of the run's type that the cores at work gave when the run started.
struct MatrixPeak {
  double flops = 0;  // FLOP/s, of all `cores` at once
  int cores = 0;     // workers, or cores where those are fewer
};

// Mean over ranks; none for an empty list.
std::optional<StepWaits> mean_waits(const std::vector<StepWaits>& ranks);

// What of one rank's communication in one step ran beside computation, by axis: `under_way` less `exposed`,
// and none where more was exposed, for a wait also takes the time until its thread runs again.
ExposedSeconds hidden_seconds(const StepWaits& rank);

// One line:
// "step 12/200  loss 3.4120  grad_norm 0.81  lr 2.9e-04  mem 1.2GiB  tps 5,410  tflops 0.13  mfu 21.4%  eta
// 0:03:12", and where waits are known and there are any "  exposed 14% (tp 8 pp 4 dp 2)", and "  skipped:
// TROUBLE". A tps or mfu that is not finite shows as "?".
std::string step_line(const StepRecord& record);

// "exposed 14% (tp 8 pp 4 dp 2)": shares of `seconds`, axes below half a percent left out; empty without any.
std::string exposed_text(const ExposedSeconds& exposed, double seconds);

}  // namespace lockstep::observe
