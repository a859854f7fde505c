#include "cost/op_prices.hpp"

#include <algorithm>
#include <stdexcept>

namespace lockstep::cost {

OpPrices::OpPrices(const config::RunFile& run)
    : hardware_(run.cluster, run.train.dtype),
      read_latency_(run.cluster.storage_latency),
      read_seconds_per_byte_(1 / run.cluster.storage_bandwidth),
      reads_ahead_(run.data.prefetch) {}

double OpPrices::kernel_seconds(const model::Op& op) const {
  const double bytes = static_cast<double>(op.bytes);
  switch (op.kind) {
    case model::OpKind::gemm:
      return hardware_.product_seconds(bytes, op.m, op.n, op.k);
    case model::OpKind::attention:
      return hardware_.attention_seconds(op.flops, bytes);
    case model::OpKind::memory:
      return hardware_.memory_seconds(bytes);
    case model::OpKind::host:
      return hardware_.memory_seconds(bytes) + (reads_ahead_ ? 0 : read_seconds(op));
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
