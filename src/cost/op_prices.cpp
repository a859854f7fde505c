#include "cost/op_prices.hpp"

#include <algorithm>
#include <stdexcept>

namespace lockstep::cost {

namespace {

// Grows from nothing for one worker on a node to busy_slowdown with one on every core.
double slowdown_of(const config::RunFile& run) {
  const config::ClusterConfig& cluster = run.cluster;
  if (cluster.cores < 2) return 1;
  const int64_t workers = std::min({run.parallel.world_size(), cluster.gpus_per_node, cluster.cores});
  const double others = static_cast<double>(workers - 1);
  return 1 + cluster.busy_slowdown * others / static_cast<double>(cluster.cores - 1);
}

double skew_of(const config::RunFile& run) {
  return 2 * run.parallel.tp > run.cluster.gpus_per_node ? 1 + run.software.host_skew : 1;
}

cluster::Product product_of(model::Work work) {
  return work == model::Work::weight_gradient ? cluster::Product::weight_gradient : cluster::Product::usual;
}

cluster::MemoryWork memory_work_of(model::Work work) {
  if (work == model::Work::rows) return cluster::MemoryWork::rows;
  return work == model::Work::exponentials ? cluster::MemoryWork::exponentials : cluster::MemoryWork::usual;
}

}  // namespace

OpPrices::OpPrices(const config::RunFile& run)
    : hardware_(run.cluster, run.train.dtype),
      read_latency_(run.cluster.storage_latency),
      read_seconds_per_byte_(1 / run.cluster.storage_bandwidth),
      reads_ahead_(run.data.prefetch),
      step_overhead_(run.cluster.step_overhead),
      slowdown_(slowdown_of(run)),
      host_launch_(run.software.host_seconds_per_launch * skew_of(run)),
      host_pass_(run.software.host_seconds_per_micro_batch /
                 static_cast<double>(run.parallel.pp * run.parallel.virtual_stages)),
      tensor_parallel_overlap_(run.software.tensor_parallel_overlap) {}

double OpPrices::waited_share(const model::Op& op) const {
  return op.beside_product ? 1 - tensor_parallel_overlap_ : 1;
}

double OpPrices::host_seconds(parallel::ActionKind kind, const std::vector<model::Op>& ops) const {
  double share = 0;
  switch (kind) {
    case parallel::ActionKind::forward:
    case parallel::ActionKind::backward:
      share = 0.5;
      break;
    case parallel::ActionKind::backward_input:
    case parallel::ActionKind::backward_weight:
      share = 0.25;
      break;
    default:
      return 0;
  }
  int64_t launches = 0;
  for (const model::Op& op : ops) launches += op.launches;
  return static_cast<double>(launches) * host_launch_ + share * host_pass_;
}

double OpPrices::kernel_seconds(const model::Op& op) const {
  if (op.kind != model::OpKind::host) return compute_seconds(op) * slowdown_;
  return hardware_.memory_seconds(static_cast<double>(op.bytes)) + (reads_ahead_ ? 0 : read_seconds(op)) +
         step_overhead_;
}

double OpPrices::compute_seconds(const model::Op& op) const {
  const double bytes = static_cast<double>(op.bytes);
  switch (op.kind) {
    case model::OpKind::gemm:
      return hardware_.product_seconds(bytes, op.m, op.n, op.k, product_of(op.work), op.batch);
    case model::OpKind::attention:
      return hardware_.attention_seconds(op.flops, bytes);
    case model::OpKind::memory:
      return hardware_.memory_seconds(bytes, memory_work_of(op.work));
    default:
      throw std::invalid_argument("communication is priced by its path, not as a kernel");
  }
}

double OpPrices::read_seconds(const model::Op& op) const {
  return read_latency_ + static_cast<double>(op.bytes) * read_seconds_per_byte_;
}

double batch_wait(const parallel::Layout& layout, const std::vector<parallel::Program>& programs,
                  const OpPrices& prices, double step_seconds) {
  if (!prices.reads_ahead()) return 0;
  double longest = 0;
  for (const parallel::Program& program : programs) {
    for (const parallel::Action& action : program.actions) {
      if (action.kind != parallel::ActionKind::load_batch) continue;
      for (const model::Op& op : parallel::action_ops(layout, program.stage, action)) {
        longest = std::max(longest, prices.read_seconds(op));
      }
    }
  }
  return std::max(0.0, longest - step_seconds);
}

}  // namespace lockstep::cost
