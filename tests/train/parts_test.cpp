// The trainer's parts: initial weights, flat layout.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <map>

#include "train/harness.hpp"
#include "train/initial_weights.hpp"

namespace lockstep::train {
namespace {

using tests::small_run;

TEST(InitialWeights, AreNormal) {
  double sum = 0, square = 0, fourth = 0;
  const int64_t n = 200000;
  for (int64_t i = 0; i < n; ++i) {
    const double x = initial_normal(7, "model.layers.3.mlp.up_proj.weight", i);
    sum += x;
    square += x * x;
    fourth += x * x * x * x;
  }
  const double count = static_cast<double>(n);
  EXPECT_NEAR(sum / count, 0, 4 / std::sqrt(count));
  EXPECT_NEAR(square / count, 1, 4 * std::sqrt(2 / count));
  EXPECT_NEAR(fourth / count, 3, 4 * std::sqrt(96 / count));
  EXPECT_NE(initial_normal(7, "a", 0), initial_normal(7, "b", 0));
  EXPECT_NE(initial_normal(7, "a", 0), initial_normal(8, "a", 0));
}

// Over all ranks every element of every parameter is held once, or by every tp rank when replicated.
TEST(FlatLayout, CoversTheModel) {
  const config::RunFile run =
      small_run({.tp = 2, .pp = 2, .virtual_stages = 2, .schedule = config::ScheduleKind::interleaved},
                config::Dtype::fp32, 1);
  const parallel::Layout layout(run);
  std::map<int64_t, int> holders;
  for (int stage = 0; stage < 2; ++stage) {
    for (int chunk = 0; chunk < 2; ++chunk) {
      for (int tp = 0; tp < 2; ++tp) {
        const FlatLayout flat(layout, stage, chunk, tp);
        for (const FlatEntry& e : flat.entries()) {
          for (int64_t i = 0; i < e.count; ++i) ++holders[e.model_offset + e.global_index(i)];
        }
      }
    }
  }
  EXPECT_EQ(static_cast<int64_t>(holders.size()), model::parameter_count(run.model));
  const int64_t norms = run.model.hidden * (2 * run.model.layers + 1);
  EXPECT_EQ(std::count_if(holders.begin(), holders.end(), [](const auto& h) { return h.second == 2; }),
            norms);
}

}  // namespace
}  // namespace lockstep::train
