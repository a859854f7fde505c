#include "cluster/kernel_curve.hpp"

#include <gtest/gtest.h>
#include <rapidcheck.h>

#include <algorithm>
#include <cmath>
#include <vector>

namespace lockstep::cluster {
namespace {

TEST(KernelCurve, WithoutPointsTheConstantHolds) {
  const KernelCurve curve(200, 0.5, {});
  for (const double size : {1e-3, 1.0, 1e15}) {
    EXPECT_DOUBLE_EQ(curve.share(size), 0.5);
    EXPECT_DOUBLE_EQ(curve.seconds(size), size / 100);
  }
  EXPECT_EQ(curve.seconds(0), 0);
}

TEST(KernelCurve, StraightOverTheLogarithmAndFlatBeyondTheEnds) {
  const KernelCurve curve(1000, 0.123, {{1e6, 0.2}, {1e8, 0.6}, {1e9, 0.5}});
  EXPECT_DOUBLE_EQ(curve.share(1), 0.2);
  EXPECT_DOUBLE_EQ(curve.share(1e6), 0.2);
  EXPECT_DOUBLE_EQ(curve.share(1e7), 0.4);  // half the way from 10^6 to 10^8
  EXPECT_DOUBLE_EQ(curve.share(1e8), 0.6);
  EXPECT_NEAR(curve.share(std::sqrt(1e17)), 0.55, 1e-12);  // a share may fall again
  EXPECT_DOUBLE_EQ(curve.share(1e9), 0.5);
  EXPECT_DOUBLE_EQ(curve.share(1e20), 0.5);
  EXPECT_NEAR(curve.seconds(1e7), 1e7 / 400, 1e-9);
  EXPECT_NEAR(curve.seconds(5e5), 5e5 / 200, 1e-9);
}

// From 10^6 to 10^7 the share climbs twentyfold, so ten times the work would take half the time.
TEST(KernelCurve, ALargerKernelIsNotFaster) {
  const KernelCurve curve(1, 1, {{1e6, 0.02}, {1e7, 0.4}, {1e9, 0.5}});
  EXPECT_DOUBLE_EQ(curve.seconds(1e6), 5e7);
  EXPECT_DOUBLE_EQ(curve.seconds(1e7), 5e7);  // and not 2.5e7
  EXPECT_DOUBLE_EQ(curve.seconds(4e8), 4e8 / curve.share(4e8));
}

// Against a search through smaller sizes, in small steps and at the points, where the curve bends.
TEST(KernelCurve, IsTheSlowestOfAllSmallerKernels) {
  EXPECT_TRUE(rc::check("running maximum of size / share", [] {
    config::Curve points;
    std::vector<double> sizes;
    for (int i = *rc::gen::inRange(1, 6); i > 0; --i) {
      const double before = points.empty() ? 1e3 : points.back().at;
      points.push_back({before * *rc::gen::inRange(2, 50), *rc::gen::inRange(1, 1001) / 1000.0});
      sizes.push_back(points.back().at);
    }
    for (double size = 100; size < 3 * points.back().at; size *= 1.02) sizes.push_back(size);
    std::sort(sizes.begin(), sizes.end());
    const KernelCurve curve(7, 1, points);
    double slowest = 0;
    for (const double size : sizes) {
      slowest = std::max(slowest, size / curve.share(size) / 7);
      RC_ASSERT(std::abs(curve.seconds(size) / slowest - 1) < 1e-12);
    }
  }));
}

}  // namespace
}  // namespace lockstep::cluster
