#include "cluster/hardware.hpp"

#include <gtest/gtest.h>

namespace lockstep::cluster {
namespace {

config::ClusterConfig round_numbers() {
  config::ClusterConfig c;
  c.peak_flops_bf16 = 1000e12;
  c.peak_flops_fp32 = 100e12;
  c.peak_flops_fp64 = 50e12;
  c.memory_bandwidth = 2e12;
  c.gemm_efficiency = 0.8;
  c.attention_efficiency = 0.5;
  c.memory_efficiency = 0.5;
  c.launch_seconds = 2e-6;
  return c;
}

TEST(Hardware, ARooflineHasTwoSides) {
  const Hardware h(round_numbers(), config::Dtype::bf16);
  const double flops = 2.0 * 8192 * 8192 * 8192;
  const double shape = 8192.0 / (8192 + 64);
  EXPECT_NEAR(h.product_seconds(flops, 1, 8192, 8192, 8192), flops / (800e12 * shape) + 2e-6, 1e-12);
  // The same product bound by memory when its operands are huge.
  EXPECT_NEAR(h.product_seconds(flops, 1e12, 8192, 8192, 8192), 1 + 2e-6, 1e-12);
  EXPECT_NEAR(h.attention_seconds(500e12, 1), 1 + 2e-6, 1e-12);
  EXPECT_NEAR(h.memory_seconds(3e12), 3 + 2e-6, 1e-12);
}

TEST(Hardware, PeakFollowsTheDtype) {
  EXPECT_EQ(Hardware(round_numbers(), config::Dtype::bf16).peak_flops(), 1000e12);
  EXPECT_EQ(Hardware(round_numbers(), config::Dtype::fp32).peak_flops(), 100e12);
  EXPECT_EQ(Hardware(round_numbers(), config::Dtype::fp64).peak_flops(), 50e12);
}

TEST(Hardware, SmallProductsReachLess) {
  EXPECT_DOUBLE_EQ(product_shape_efficiency(128, 256, 64), 0.5);  // full tiles, as long to fill as to run
  EXPECT_DOUBLE_EQ(product_shape_efficiency(64, 128, 64), 0.25);  // half a tile
  EXPECT_DOUBLE_EQ(product_shape_efficiency(129, 128, 64), 129.0 / 256 * 0.5);
  EXPECT_GT(product_shape_efficiency(8192, 16384, 16384), 0.99);
  for (int64_t k = 1; k < 4096; k *= 2) {
    EXPECT_LT(product_shape_efficiency(128, 128, k), product_shape_efficiency(128, 128, 2 * k));
  }
}

}  // namespace
}  // namespace lockstep::cluster
