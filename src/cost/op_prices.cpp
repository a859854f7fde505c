#include "cost/op_prices.hpp"

#include <stdexcept>

namespace lockstep::cost {

OpPrices::OpPrices(const config::RunFile& run)
    : hardware_(run.cluster, run.train.dtype), network_(run.cluster) {}

double OpPrices::kernel_seconds(const model::Op& op) const {
  const double bytes = static_cast<double>(op.bytes);
  switch (op.kind) {
    case model::OpKind::gemm:
      return hardware_.product_seconds(bytes, op.m, op.n, op.k);
    case model::OpKind::attention:
      return hardware_.attention_seconds(op.flops, bytes);
    case model::OpKind::memory:
    case model::OpKind::host:
      return hardware_.memory_seconds(bytes);
    default:
      throw std::invalid_argument("communication is priced by its path, not as a kernel");
  }
}

}  // namespace lockstep::cost
