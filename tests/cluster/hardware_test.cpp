#include "cluster/hardware.hpp"

#include <gtest/gtest.h>
#include <rapidcheck.h>

#include <algorithm>
#include <cmath>

#include "cluster/kernel_tiles.hpp"

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

Hardware bf16(const config::ClusterConfig& cluster) { return Hardware(cluster, config::Dtype::bf16); }

TEST(Hardware, ARooflineHasTwoSides) {
  const Hardware h = bf16(round_numbers());
  // Full tiles of 256 x 128; each takes 64 steps more.
  const double flops = 2.0 * 8192 * 8192 * (8192 + 64);
  EXPECT_NEAR(h.product_seconds(1, 8192, 8192, 8192), flops / 800e12 + 2e-6, 1e-12);
  // The same product bound by memory when its operands are huge.
  EXPECT_NEAR(h.product_seconds(1e12, 8192, 8192, 8192), 1 + 2e-6, 1e-12);
  EXPECT_NEAR(h.attention_seconds(500e12, 1), 1 + 2e-6, 1e-12);
  EXPECT_NEAR(h.attention_seconds(1, 1e12), 1 + 2e-6, 1e-12);
  EXPECT_NEAR(h.memory_seconds(3e12), 3 + 2e-6, 1e-12);
}

TEST(Hardware, KernelsWithoutACurveOfTheirOwnTakeTheGeneralOne) {
  config::ClusterConfig c = round_numbers();
  c.gemm_curve = {{1, 0.4}};
  c.memory_curve = {{1, 0.1}};
  const Hardware general = bf16(c);
  c.weight_gradient_curve = {{1, 0.2}};
  c.row_curve = {{1, 0.05}};
  const Hardware own = bf16(c);
  EXPECT_EQ(general.memory_seconds(1e9, MemoryWork::rows), general.memory_seconds(1e9));
  EXPECT_EQ(general.product_seconds(1, 512, 512, 512, Product::weight_gradient),
            general.product_seconds(1, 512, 512, 512));
  EXPECT_EQ(own.memory_seconds(1e9, MemoryWork::exponentials), general.memory_seconds(1e9));
  EXPECT_NEAR(own.memory_seconds(1e9, MemoryWork::rows) - 2e-6, 1e9 / (0.05 * 2e12), 1e-12);
  EXPECT_NEAR((own.product_seconds(1, 512, 512, 512, Product::weight_gradient) - 2e-6) /
                  (own.product_seconds(1, 512, 512, 512) - 2e-6),
              2, 1e-9);
}

TEST(Hardware, PeakFollowsTheDtype) {
  EXPECT_EQ(Hardware(round_numbers(), config::Dtype::bf16).peak_flops(), 1000e12);
  EXPECT_EQ(Hardware(round_numbers(), config::Dtype::fp32).peak_flops(), 100e12);
  EXPECT_EQ(Hardware(round_numbers(), config::Dtype::fp64).peak_flops(), 50e12);
}

// 16 x 64 tiles of 256 x 128 over 100 multiprocessors: 11 waves where 10.24 would do. Split in two they are
// 20.48, rounded to 21 halves: 10.5 waves, and the partial sums are written and read at 1e12 bytes/s.
TEST(Hardware, WavesAndTheSplitThatFillsThem) {
  config::ClusterConfig c = round_numbers();
  c.multiprocessors = 100;
  const double tile = 2.0 * 256 * 128;
  const double whole = 11 * 100 * tile * (32768 + 64) / 800e12;
  const double halves = 21 * 100 * tile * (16384 + 64) / 800e12 + 4096 * 8192 * 2 * 8 / 1e12;
  ASSERT_LT(whole, halves);  // the partial sums cost more than half a wave
  EXPECT_NEAR(bf16(c).product_seconds(1, 4096, 8192, 32768), whole + 2e-6, 1e-9);

  // One tile and a long k: 16 slices.
  const double small = 2.0 * 64 * 64 * 1.5 / 1.1875;
  const double sixteenth = 100 * small * (65536 / 16 + 64) / 800e12 + 64 * 64 * 16 * 8 / 1e12;
  EXPECT_NEAR(bf16(c).product_seconds(1, 64, 64, 65536), sixteenth + 2e-6, 1e-12);
}

TEST(Hardware, CurvesTakeTheConstantsPlace) {
  config::ClusterConfig c = round_numbers();
  c.multiprocessors = 1;
  c.gemm_curve = {{1e6, 0.1}, {1e12, 0.7}};
  c.attention_curve = {{1e9, 0.2}, {1e11, 0.6}};
  c.memory_curve = {{1e6, 0.25}, {1e8, 0.75}};
  const Hardware h = bf16(c);
  EXPECT_NEAR(h.attention_seconds(1e10, 1), 1e10 / (1000e12 * 0.4) + 2e-6, 1e-15);
  EXPECT_NEAR(h.memory_seconds(1e7), 1e7 / (2e12 * 0.5) + 2e-6, 1e-15);
  // Work of 2 x 256 x 128 x (936 + 64) = 65,536,000 FLOPs, where the curve has 0.1 + 0.6 log(65.536) /
  // log(10^6).
  const double share = 0.1 + 0.6 * std::log(65.536) / std::log(1e6);
  EXPECT_NEAR(h.product_seconds(1, 256, 128, 936), 65536000 / (1000e12 * share) + 2e-6, 1e-15);
}

// What `calibrate` measures has all losses in it.
TEST(Hardware, AMeasuredCurveWithoutMultiprocessorsStandsAlone) {
  config::ClusterConfig c = round_numbers();
  c.gemm_curve = {{1e3, 0.1}, {1e9, 0.7}};
  // 2 x 10 x 10 x 5,000 = 10^6 FLOPs, half way.
  EXPECT_NEAR(bf16(c).product_seconds(1, 10, 10, 5000), 1e6 / (1000e12 * 0.4) + 2e-6, 1e-18);
  // In whatever shape they come.
  EXPECT_EQ(bf16(c).product_seconds(1, 10, 10, 5000), bf16(c).product_seconds(1, 1, 250000, 2));
  // Memory still bounds it.
  EXPECT_NEAR(bf16(c).product_seconds(1e12, 10, 10, 5000), 1 + 2e-6, 1e-12);
}

config::Curve drawn_curve(double smallest) {
  config::Curve curve;
  for (int i = *rc::gen::inRange(0, 4); i > 0; --i) {
    const double before = curve.empty() ? smallest : curve.back().at;
    curve.push_back({before * *rc::gen::inRange(2, 1000), *rc::gen::inRange(1, 101) / 100.0});
  }
  return curve;
}

config::ClusterConfig drawn_cluster() {
  config::ClusterConfig c = round_numbers();
  c.multiprocessors = *rc::gen::inRange(0, 3) == 0 ? 0 : *rc::gen::inRange(1, 200);
  c.gemm_curve = drawn_curve(1e5);
  c.attention_curve = drawn_curve(1e5);
  c.memory_curve = drawn_curve(1e3);
  return c;
}

// Sizes from 1 to 16,384, small ones as often as large ones.
int64_t drawn_size() {
  return int64_t{1} << *rc::gen::inRange(0, 14) | *rc::gen::inRange(0, 16384) >> *rc::gen::inRange(0, 14);
}

void not_shorter(double longer, double shorter) { RC_ASSERT(longer >= shorter * (1 - 1e-12)); }

TEST(Hardware, MoreWorkIsNeverShorter) {
  EXPECT_TRUE(rc::check("sizes, FLOPs and bytes", [] {
    const Hardware h = bf16(drawn_cluster());
    const int64_t m = drawn_size(), n = drawn_size(), k = drawn_size();
    const auto seconds = [&](int64_t more_m, int64_t more_n, int64_t more_k) {
      const int64_t a = m + more_m, b = n + more_n, c = k + more_k;
      return h.product_seconds(2.0 * static_cast<double>(a * b + b * c + a * c), a, b, c);
    };
    const double before = seconds(0, 0, 0);
    for (const int64_t more : {int64_t{1}, drawn_size()}) {
      not_shorter(seconds(more, 0, 0), before);
      not_shorter(seconds(0, more, 0), before);
      not_shorter(seconds(0, 0, more), before);
    }
    const double size = static_cast<double>(m) * static_cast<double>(n), more = static_cast<double>(k);
    not_shorter(h.attention_seconds(size + more, size), h.attention_seconds(size, size));
    not_shorter(h.attention_seconds(size, size + more), h.attention_seconds(size, size));
    not_shorter(h.memory_seconds(size + more), h.memory_seconds(size));
  }));
}

TEST(Hardware, AFasterDeviceIsNeverLonger) {
  EXPECT_TRUE(rc::check("peak and bandwidth", [] {
    const config::ClusterConfig slow = drawn_cluster();
    config::ClusterConfig fast = slow;
    if (*rc::gen::arbitrary<bool>()) fast.peak_flops_bf16 *= *rc::gen::inRange(100, 400) / 100.0;
    if (*rc::gen::arbitrary<bool>()) fast.memory_bandwidth *= *rc::gen::inRange(100, 400) / 100.0;
    const int64_t m = drawn_size(), n = drawn_size(), k = drawn_size();
    const double bytes = static_cast<double>(m * n);
    not_shorter(bf16(slow).product_seconds(bytes, m, n, k), bf16(fast).product_seconds(bytes, m, n, k));
    not_shorter(bf16(slow).attention_seconds(bytes * 100, bytes),
                bf16(fast).attention_seconds(bytes * 100, bytes));
    not_shorter(bf16(slow).memory_seconds(bytes), bf16(fast).memory_seconds(bytes));
  }));
}

// No kernel beats the roofline: its own FLOPs at the peak, its bytes at the memory's bandwidth.
TEST(Hardware, NothingBeatsThePeak) {
  EXPECT_TRUE(rc::check("roofline", [] {
    const config::ClusterConfig c = drawn_cluster();
    const int64_t m = drawn_size(), n = drawn_size(), k = drawn_size();
    const double flops = 2.0 * static_cast<double>(m) * static_cast<double>(n) * static_cast<double>(k);
    const double bytes = static_cast<double>(m * n);
    const double bound = std::max(flops / c.peak_flops_bf16, bytes / c.memory_bandwidth) + c.launch_seconds;
    not_shorter(bf16(c).product_seconds(bytes, m, n, k), bound);
    not_shorter(bf16(c).attention_seconds(flops, bytes), bound);
  }));
}

}  // namespace
}  // namespace lockstep::cluster
