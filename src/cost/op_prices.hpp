// What the ops of a step program cost on the modelled cluster. Planner and simulator take every price here,
// so that they differ only in how they put ops together.
#pragma once

#include <vector>

#include "cluster/hardware.hpp"
#include "config/run_file.hpp"
#include "model/op.hpp"
#include "parallel/program.hpp"

namespace lockstep::cost {

class OpPrices {
 public:
  // `run` has passed config's rules.
  explicit OpPrices(const config::RunFile& run);

  const cluster::Hardware& hardware() const { return hardware_; }

  // Seconds of an op on the compute or host stream. A host op copies its batch; without data.prefetch it
  // reads it first. Throws invalid_argument for communication. Where workers share a node's cores, kernels
  // are longer by what the workers beside cost them (cluster.busy_slowdown; in proportion where not every
  // core has one), and a host op has what a worker does between two steps (cluster.step_overhead).
  double kernel_seconds(const model::Op& op) const;
  // To read a host op's batch from the cluster's storage.
  double read_seconds(const model::Op& op) const;
  bool reads_ahead() const { return reads_ahead_; }

  double step_overhead() const { return step_overhead_; }

  // What the host needs to queue the ops of a pass (`kind`), seconds; the pass takes no less. Its launches at
  // software.host_seconds_per_launch, and the pass's part of host_seconds_per_micro_batch.
  double host_seconds(parallel::ActionKind kind, const std::vector<model::Op>& ops) const;

  // Of a collective's time, the share for which the computation waits: 1, but for all-gathers and
  // reduce-scatters beside a layer's product (software.tensor_parallel_overlap). Its links are in use for all
  // of it.
  double waited_share(const model::Op& op) const;

 private:
  double compute_seconds(const model::Op& op) const;

  cluster::Hardware hardware_;
  double read_latency_ = 0, read_seconds_per_byte_ = 0;
  bool reads_ahead_ = true;
  double step_overhead_;
  double slowdown_;                 // of kernels, by the workers beside
  double host_launch_, host_pass_;  // of a launch; of all passes of a chunk and micro-batch
  double tensor_parallel_overlap_;
};

// Seconds that a step waits for its batch before it begins, with data.prefetch; else 0. A rank reads its next
// batch from when it has taken one, a whole step long: of the longest read that is left which exceeds
// `step_seconds`, a step's without this wait. So a step takes no less than the longest read. All ranks wait:
// those that read nothing, for the others.
double batch_wait(const parallel::Layout& layout, const std::vector<parallel::Program>& programs,
                  const OpPrices& prices, double step_seconds);

constexpr bool is_kernel(model::OpKind kind) {
  return kind == model::OpKind::gemm || kind == model::OpKind::attention || kind == model::OpKind::memory ||
         kind == model::OpKind::host;
}

}  // namespace lockstep::cost
