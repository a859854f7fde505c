// The arithmetic under the kernels, and what make_context refuses.
#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <random>
#include <vector>

#include "base/error.hpp"
#include "harness.hpp"
#include "nn/element.hpp"
#include "nn/small_product.hpp"

namespace lockstep::nn::test {
namespace {

TEST(Element, ExponentialIsAccurateInItsRange) {
  double worst = 0;
  for (float x = -87.0F; x <= 88.0F; x += 0.0007F) {
    const double exact = std::exp(static_cast<double>(x));
    worst = std::max(worst, std::abs(static_cast<double>(exp_of(x)) - exact) / exact);
  }
  EXPECT_LT(worst, 2e-7);
  EXPECT_EQ(exp_of(0.0F), 1.0F);
  EXPECT_LT(exp_of(-1e30F), 2e-38F);
  EXPECT_LT(exp_of(-std::numeric_limits<float>::infinity()), 2e-38F);
  EXPECT_TRUE(std::isfinite(exp_of(1e30F)));
  EXPECT_TRUE(std::isnan(exp_of(std::numeric_limits<float>::quiet_NaN())));
}

TEST(Element, Bf16RoundsAsLibTorchDoes) {
  std::mt19937 random(1);
  for (int i = 0; i < 1'000'000; ++i) {
    const float value = std::bit_cast<float>(static_cast<uint32_t>(random()));
    Bf16 ours;
    store(ours, value);
    const c10::BFloat16 theirs(value);
    if (std::isnan(value)) {
      EXPECT_TRUE(std::isnan(load(ours)));
    } else {
      ASSERT_EQ(ours.bits, theirs.x) << value;
    }
  }
  for (const float tie : {1.00390625F, 1.01171875F, -1.00390625F}) {
    Bf16 ours;
    store(ours, tie);
    EXPECT_EQ(ours.bits, c10::BFloat16(tie).x);
  }
}

TEST(Element, SumsAndMaximaCoverEveryElement) {
  for (int64_t n = 1; n < 70; ++n) {
    EXPECT_EQ((sum_of<double>(n, [](int64_t i) { return static_cast<double>(i + 1); })),
              static_cast<double>(n * (n + 1) / 2));
    for (int64_t top = 0; top < n; ++top) {
      std::vector<float> values(static_cast<size_t>(n), -3.0F);
      values[static_cast<size_t>(top)] = -1.5F;
      EXPECT_EQ(max_of(values.data(), n), -1.5F);
      std::vector<Bf16> halves(values.size());
      for (size_t i = 0; i < values.size(); ++i) store(halves[i], values[i]);
      EXPECT_EQ(max_of(halves.data(), n), -1.5F);
    }
  }
}

// Every remainder of the tile, both layouts of the left operand, added to and not.
template <class R>
void check_products(double tolerance) {
  std::mt19937 random(7);
  std::uniform_real_distribution<R> uniform(-1, 1);
  for (const int64_t m : {1, 2, 3, 4, 5, 6, 7, 13}) {
    for (const int64_t n : {1, 8, 15, 16, 17, 40}) {
      for (const int64_t depth : {1, 5, 48}) {
        for (const bool transposed : {false, true}) {
          for (const bool accumulate : {false, true}) {
            const int64_t row = kernel::padded(n);
            std::vector<R> a(static_cast<size_t>(m * depth)), b(static_cast<size_t>(depth * row));
            std::vector<R> c(static_cast<size_t>(m * row));
            for (auto* v : {&a, &b, &c}) {
              for (R& value : *v) value = uniform(random);
            }
            const std::vector<R> before = c;
            const kernel::Strided<R> left{a.data(), transposed ? 1 : depth, transposed ? m : 1};
            kernel::small_product(m, n, depth, left, b.data(), row, c.data(), row, accumulate);
            for (int64_t i = 0; i < m; ++i) {
              for (int64_t j = 0; j < n; ++j) {
                double exact = accumulate ? before[static_cast<size_t>(i * row + j)] : 0.0;
                for (int64_t k = 0; k < depth; ++k) {
                  exact += static_cast<double>(left.data[i * left.row + k * left.column]) *
                           static_cast<double>(b[static_cast<size_t>(k * row + j)]);
                }
                ASSERT_NEAR(c[static_cast<size_t>(i * row + j)], exact, tolerance)
                    << m << " " << n << " " << depth;
              }
            }
          }
        }
      }
    }
  }
}

TEST(SmallProduct, MatchesPlainLoops) {
  check_products<float>(2e-5);
  check_products<double>(1e-13);
}

TEST(Context, RefusesWhatItCannotRun) {
  Case c;
  c.head_dim = 3;
  EXPECT_THROW(make_context(c.shape(), c.dtype, rope_theta, norm_eps, nullptr, nullptr, nullptr), UsageError);
  c = {};
  c.tp = 2;
  EXPECT_THROW(make_context(c.shape(), c.dtype, rope_theta, norm_eps, nullptr, nullptr, nullptr), UsageError);
  c = {};
  c.cp = 2;
  EXPECT_THROW(make_context(c.shape(), c.dtype, rope_theta, norm_eps, nullptr, nullptr, nullptr), UsageError);
  Case uneven{.micro_batch = 1, .sequence = 10, .cp = 2};
  EXPECT_THROW(run_ranks(uneven, [](Context&, OpLog&) {}), UsageError);
  Case odd{.micro_batch = 1, .sequence = 7, .tp = 2, .sequence_parallel = true};
  EXPECT_THROW(run_ranks(odd, [](Context&, OpLog&) {}), UsageError);
}

}  // namespace
}  // namespace lockstep::nn::test
