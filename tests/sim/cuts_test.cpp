// What each way of cutting a run costs in the simulator.
#include <gtest/gtest.h>

#include "sim/small_runs.hpp"

namespace lockstep::sim {
namespace {

using namespace test;

// Weight gradients fill 1F1B's gaps, and no stage holds more micro-batches than 1F1B's first one.
TEST(Cuts, ZeroBubbleIdlesLessThan1F1BAtTheSamePeak) {
  for (const int64_t m : {8, 16, 32}) {
    config::RunFile run = even_run(8, 1, m);
    const double plain = simulate(run, no_jitter()).bubble_fraction;
    const int live = parallel::peak_live(parallel::Layout(run).schedule(), 0);
    run.parallel.schedule = config::ScheduleKind::zero_bubble_h1;
    EXPECT_LT(simulate(run, no_jitter()).bubble_fraction, 0.6 * plain) << m;
    EXPECT_EQ(parallel::peak_live(parallel::Layout(run).schedule(), 0), live);
  }
}

TEST(Cuts, ContextParallelCostsItsCollectives) {
  config::RunFile run = small_run(2, 2, 4, 1, 4);
  const StepResult alone = simulate(run, no_jitter());
  EXPECT_EQ(alone.split.cp, 0);
  run.parallel.dp = 1;
  run.parallel.cp = 4;
  run.train.global_batch = 4;
  const StepResult inside = simulate(run, no_jitter());
  EXPECT_GT(inside.split.cp, 0);
  EXPECT_LT(inside.seconds, alone.seconds);  // a quarter of each sequence
  run.cluster.gpus_per_node = 2;
  EXPECT_GT(simulate(run, no_jitter()).split.cp, 2 * inside.split.cp);
}

TEST(Cuts, GathersAreHiddenUntilTheyTakeLongerThanAPass) {
  config::RunFile run = small_run(1, 2, 4, 4, 4);
  run.parallel.zero = 3;
  run.cluster.nic_bandwidth = 2e12;
  run.cluster.nvlink_bandwidth = 2e12;
  const StepResult fast = simulate(run, no_jitter());
  run.cluster.nic_bandwidth = 2e10;
  run.cluster.nvlink_bandwidth = 2e10;
  const StepResult slow = simulate(run, no_jitter());
  EXPECT_LT(fast.split.dp, 0.1 * fast.seconds);
  EXPECT_GT(slow.split.dp, 0.2 * slow.seconds);
}

TEST(Cuts, EveryRoundOfReplicasIsComputed) {
  config::RunFile run = small_run(1, 2, 4, 1, 4);
  const StepResult four = simulate(run, no_jitter());
  run.parallel.dp = 2;
  run.parallel.replicas = 4;
  const StepResult two_by_two = simulate(run, no_jitter());
  EXPECT_NEAR(two_by_two.split.compute, 2 * four.split.compute, 0.01 * four.split.compute);
}

}  // namespace
}  // namespace lockstep::sim
