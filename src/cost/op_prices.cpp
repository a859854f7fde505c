#include "cost/op_prices.hpp"

#include <stdexcept>

namespace lockstep::cost {

OpPrices::OpPrices(const config::RunFile& run) : hardware_(run.cluster, run.train.dtype) {
  if (run.data.prefetch) return;
  read_latency_ = run.cluster.storage_latency;
  read_seconds_per_byte_ = 1 / run.cluster.storage_bandwidth;
}

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
      return hardware_.memory_seconds(bytes) + read_latency_ + bytes * read_seconds_per_byte_;
    default:
      throw std::invalid_argument("communication is priced by its path, not as a kernel");
  }
}

}  // namespace lockstep::cost
