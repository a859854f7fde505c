#include "cluster/hardware.hpp"

#include <algorithm>

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

double filled(int64_t size, int64_t tile) {
  const int64_t padded = (size + tile - 1) / tile * tile;
  return static_cast<double>(size) / static_cast<double>(padded);
}

}  // namespace

double product_shape_efficiency(int64_t m, int64_t n, int64_t k) {
  constexpr int64_t tile = 128;
  constexpr double fill = 64;
  const double depth = static_cast<double>(k);
  return filled(m, tile) * filled(n, tile) * depth / (depth + fill);
}

Hardware::Hardware(const config::ClusterConfig& cluster, config::Dtype dtype)
    : peak_(peak_of(cluster, dtype)),
      product_rate_(peak_ * cluster.gemm_efficiency),
      attention_rate_(peak_ * cluster.attention_efficiency),
      memory_rate_(cluster.memory_bandwidth * cluster.memory_efficiency),
      launch_(cluster.launch_seconds) {}

double Hardware::roofline(double flops, double rate, double bytes) const {
  return std::max(flops / rate, bytes / memory_rate_) + launch_;
}

double Hardware::product_seconds(double flops, double bytes, int64_t m, int64_t n, int64_t k) const {
  return roofline(flops, product_rate_ * product_shape_efficiency(m, n, k), bytes);
}

double Hardware::attention_seconds(double flops, double bytes) const {
  return roofline(flops, attention_rate_, bytes);
}

double Hardware::memory_seconds(double bytes) const { return bytes / memory_rate_ + launch_; }

}  // namespace lockstep::cluster
