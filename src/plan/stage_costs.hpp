// Seconds of the parts of a step at every pipeline stage, from the same prices that the simulator uses: what
// the closed form is put together from.
#pragma once

#include <vector>

#include "cost/op_prices.hpp"
#include "parallel/layout.hpp"

namespace lockstep::plan {

// Of one pass over one chunk.
struct PassCost {
  double kernels = 0;
  double tp = 0;  // collectives, at the pace of the stage's slowest group
  double seconds() const { return kernels + tp; }
};

struct StageCost {
  std::vector<PassCost> forward, backward;  // by chunk
  std::vector<double> reduce;               // by chunk: gradient reduce-scatter
  std::vector<double> reduce_tp;            // by chunk: all-reduce of replicated gradients, on compute
  std::vector<double> adamw;                // by chunk
  std::vector<double> gather;               // by chunk: parameter all-gather
  double load = 0;                          // load_batch
  double norm_kernel = 0;
  double norm_dp = 0, norm_tp = 0, norm_pp = 0;  // the norm's collectives
  double message = 0;                            // to the next stage, the slowest rank's

  double work() const;     // of one micro-batch: all chunks' passes
  double kernels() const;  // of those, kernels
};

std::vector<StageCost> stage_costs(const parallel::Layout& layout, const cost::OpPrices& prices);

}  // namespace lockstep::plan
