#include "cost/collective_cost.hpp"

#include <gtest/gtest.h>

namespace lockstep::cost {
namespace {

using collective::Collective;
using model::OpKind;

struct Case {
  Collective collective;
  OpKind kind;
};
const Case cases[] = {{Collective::all_reduce, OpKind::all_reduce},
                      {Collective::all_gather, OpKind::all_gather},
                      {Collective::reduce_scatter, OpKind::reduce_scatter}};

TEST(CollectiveCost, ClosedFormOfTheRingEqualsItsStepList) {
  const cluster::Path hop{5e-6, 1 / 42e9};
  for (const Case& c : cases) {
    for (const int n : {2, 3, 4, 7, 8, 16, 61, 128}) {
      for (const int64_t bytes : {int64_t{16}, int64_t{268435456}}) {
        const double listed =
            step_list_seconds(collective::ring(c.collective, n), bytes, [&](int, int) { return hop; });
        const double closed = ring_cost(c.kind, n).seconds(bytes, hop);
        EXPECT_NEAR(closed / listed, 1, 1e-12) << collective::name_of(c.collective) << " of " << n;
      }
    }
  }
}

TEST(CollectiveCost, OneSlowHopSetsThePaceOfTheWholeRing) {
  const cluster::Path fast{1e-6, 1 / 400e9}, slow{5e-6, 1 / 40e9};
  const auto path = [&](int from, int) { return from == 2 ? slow : fast; };
  const double listed = step_list_seconds(collective::ring(Collective::all_gather, 8), 1 << 26, path);
  EXPECT_NEAR(listed / ring_cost(OpKind::all_gather, 8).seconds(1 << 26, slow), 1, 1e-12);
}

TEST(CollectiveCost, KnownTimes) {
  // 10 GB over 128 GPUs: 0.397 s at 50 GB/s, 0.0441 s at 450 GB/s, latency apart.
  const CollectiveCost ring = ring_cost(OpKind::all_reduce, 128);
  EXPECT_NEAR(ring.seconds(10'000'000'000, {0, 1 / 50e9}), 0.397, 0.0005);
  EXPECT_NEAR(ring.seconds(10'000'000'000, {0, 1 / 450e9}), 0.0441, 0.00005);
  // 32,766 rounds of 1 us over 16,384 ranks.
  EXPECT_NEAR(ring_cost(OpKind::all_reduce, 16384).seconds(0, {1e-6, 0}), 0.032766, 1e-12);
}

TEST(CollectiveCost, FewerRoundsWinWhereLatencyRules) {
  const cluster::Path hop{5e-6, 1 / 42e9};
  const auto path = [&](int, int) { return hop; };
  const double ring = step_list_seconds(collective::ring(Collective::all_reduce, 64), 1024, path);
  const double halving =
      step_list_seconds(collective::halving_doubling(Collective::all_reduce, 64), 1024, path);
  EXPECT_NEAR(halving, 2 * 6 * 5e-6 + 2 * 63.0 / 64 * 1024 / 42e9, 1e-12);
  EXPECT_LT(halving, ring / 5);
}

}  // namespace
}  // namespace lockstep::cost
