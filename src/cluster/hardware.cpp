#include "cluster/hardware.hpp"

#include <algorithm>

#include "cluster/kernel_tiles.hpp"

namespace lockstep::cluster {

namespace {

double peak_of(const config::ClusterConfig& cluster, config::Dtype dtype) {
  switch (dtype) {
    case config::Dtype::bf16:
      return cluster.peak_flops_bf16;
    case config::Dtype::fp32:
      return cluster.peak_flops_fp32;
    case config::Dtype::fp64:
      return cluster.peak_flops_fp64;
  }
  return 0;
}

const config::Curve& first_given(const config::Curve& own, const config::Curve& otherwise) {
  return own.empty() ? otherwise : own;
}

// Slices of k that are tried: 1, 2, 4, ... CUTLASS takes any number of them, and its stream-K parts of a tile
// too (Osama et al., "Stream-K", arXiv:2301.03598).
constexpr int64_t most_slices = 16;

}  // namespace

Hardware::Hardware(const config::ClusterConfig& cluster, config::Dtype dtype)
    : peak_(peak_of(cluster, dtype)),
      products_(peak_, cluster.gemm_efficiency, cluster.gemm_curve),
      weight_gradients_(peak_, cluster.gemm_efficiency,
                        first_given(cluster.weight_gradient_curve, cluster.gemm_curve)),
      attention_(peak_, cluster.attention_efficiency, cluster.attention_curve),
      memory_(cluster.memory_bandwidth, cluster.memory_efficiency, cluster.memory_curve),
      rows_(cluster.memory_bandwidth, cluster.memory_efficiency,
            first_given(cluster.row_curve, cluster.memory_curve)),
      exponentials_(cluster.memory_bandwidth, cluster.memory_efficiency,
                    first_given(cluster.exponential_curve, cluster.memory_curve)),
      launch_(cluster.launch_seconds),
      multiprocessors_(cluster.multiprocessors),
      products_measured_whole_(cluster.multiprocessors == 0 && !cluster.gemm_curve.empty()) {}

double Hardware::split_product_seconds(const KernelCurve& curve, double bytes, int64_t m, int64_t n,
                                       int64_t k, int64_t slices, int64_t batch) const {
  const double work = tiled_product_flops(m, n, k, slices, multiprocessors_, batch);
  const double partial_sums = memory_.seconds(partial_sum_bytes(m, n, slices));
  return std::max(curve.seconds(work), memory_.seconds(bytes)) + partial_sums;
}

double Hardware::product_seconds(double bytes, int64_t m, int64_t n, int64_t k, Product product,
                                 int64_t batch) const {
  const KernelCurve& curve = product == Product::weight_gradient ? weight_gradients_ : products_;
  if (products_measured_whole_) {
    const double flops = 2 * static_cast<double>(m) * static_cast<double>(n) * static_cast<double>(k) *
                         static_cast<double>(batch);
    return std::max(curve.seconds(flops), memory_.seconds(bytes)) + launch_;
  }
  double fastest = split_product_seconds(curve, bytes, m, n, k, 1, batch);
  // Without waves a split only adds work.
  for (int64_t slices = 2; multiprocessors_ > 0 && batch == 1 && slices <= most_slices; slices *= 2) {
    fastest = std::min(fastest, split_product_seconds(curve, bytes, m, n, k, slices, batch));
  }
  return fastest + launch_;
}

double Hardware::attention_seconds(double flops, double bytes) const {
  return std::max(attention_.seconds(flops), memory_.seconds(bytes)) + launch_;
}

double Hardware::memory_seconds(double bytes, MemoryWork work) const {
  const KernelCurve& curve = work == MemoryWork::rows           ? rows_
                             : work == MemoryWork::exponentials ? exponentials_
                                                                : memory_;
  return curve.seconds(bytes) + launch_;
}

}  // namespace lockstep::cluster
