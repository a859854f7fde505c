// Seconds of the parts of a step at every pipeline stage, from the same prices that the simulator uses: what
// the closed form is put together from.
#pragma once

#include <algorithm>
#include <utility>
#include <vector>

#include "cost/op_prices.hpp"
#include "cost/transfer_prices.hpp"
#include "parallel/program.hpp"

namespace lockstep::plan {

// Of ops that run one after another on the compute timeline. Collectives at the pace of the stage's slowest
// group.
struct BlockingCost {
  double kernels = 0;
  double tp = 0;
  double cp = 0;
  double tp_hidden = 0;  // behind products, among the kernels: what the links are in use for beside `tp`
  double host = 0;       // that the host needs to queue them; they take no less

  double device() const { return kernels + tp + cp; }
  double seconds() const { return std::max(device(), host); }
  // With what the device waits for its host among the kernels.
  BlockingCost waited() const { return {host > device() ? host - tp - cp : kernels, tp, cp, tp_hidden, 0}; }
  BlockingCost& operator+=(const BlockingCost& other) {
    kernels += other.kernels;
    tp += other.tp;
    cp += other.cp;
    tp_hidden += other.tp_hidden;
    host += other.host;
    return *this;
  }
};
inline BlockingCost operator+(BlockingCost a, const BlockingCost& b) { return a += b; }
inline BlockingCost operator*(double times, const BlockingCost& cost) {
  return {times * cost.kernels, times * cost.tp, times * cost.cp, times * cost.tp_hidden, times * cost.host};
}

struct ChunkCost {
  BlockingCost forward, backward_input, backward_weight;  // one micro-batch's passes
  bool halves = false;          // backward is run in two, each of which waits for its host
  BlockingCost reduce;          // of one reduction: what runs before the scatter,
  double reduce_dp = 0;         // and the scatter, beside the computation
  double gather_gradients = 0;  // zero = 0
  double sum_tied = 0;          // of a tied embedding, over first and last stage
  double update = 0;            // the optimizer's kernel
  double gather = 0;            // all-gather of the parameters
  int reductions = 1;           // a step
  double unshards = 0;          // a step, zero = 3; a mean where chunks differ

  BlockingCost backward() const { return backward_input + backward_weight; }
  double backward_seconds() const {
    if (halves) return backward_input.seconds() + backward_weight.seconds();
    return std::max(backward_input.device() + backward_weight.device(), backward().host);
  }
};

struct StageCost {
  std::vector<ChunkCost> chunks;
  double load = 0;  // load_batch
  double norm_kernel = 0;
  double norm_dp = 0, norm_tp = 0, norm_pp = 0;  // the norm's collectives
  double message = 0;                            // to the next stage, the slowest rank's

  // Of one micro-batch, through all chunks and back: BlockingCost::waited of each pass.
  BlockingCost passes() const;
};

// How many times as long things take beside one another.
struct Contention {
  double kernels = 0;                         // kernels 1 + this beside communication
  double tp = 1, cp = 1;                      // their collectives beside one over dp_cp
  double dp_beside_tp = 1, dp_beside_cp = 1;  // a collective over dp_cp beside them
};

// Ops of a pass or another action: kernels' seconds, and the collectives.
struct OpSums {
  // How often one comes: in whole, of which the computation waits for OpPrices::waited_share.
  struct Collective {
    cost::Transfer transfer;
    double times = 0, waited = 0;
  };
  double kernels = 0;
  std::vector<Collective> collectives;
};
OpSums sum_ops(const std::vector<model::Op>& ops, const cost::OpPrices& prices);

// Of a layout's typical transfers, `dp_bytes` of gradients over dp_cp among them.
Contention contention_of(cost::TransferPrices& prices, const config::RunFile& run, const parallel::Mesh& mesh,
                         const model::ShardShape& shape, int64_t dp_bytes);

struct StepCosts {
  std::vector<StageCost> stages;
  Contention contention;
};
// `programs`: the layout's, one a stage.
StepCosts step_costs(const parallel::Layout& layout, const std::vector<parallel::Program>& programs,
                     const cost::OpPrices& prices);

}  // namespace lockstep::plan
