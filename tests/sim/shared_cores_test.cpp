#include "sim/shared_cores.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>

#include "cost/transfer_prices.hpp"
#include "sim/small_runs.hpp"

namespace lockstep::sim {
namespace {

using namespace test;

SharedStep shared_step(const config::RunFile& run, const StepOptions& options) {
  const parallel::Layout layout(run);
  return simulate_shared_step(layout, parallel::build_step_programs(layout), options);
}

double kernel_sum(const StepResult& step) {
  return std::accumulate(step.kernel_seconds.begin(), step.kernel_seconds.end(), 0.0);
}

// What collectives and messages keep the cores of one node busy with: of every op of every rank, one by one.
double transfer_sum(const parallel::Layout& layout, double cores) {
  cost::TransferPrices prices(layout.run(), layout.mesh());
  double sum = 0;
  const auto programs = parallel::build_step_programs(layout);
  for (int rank = 0; rank < layout.mesh().size(); ++rank) {
    const int stage = layout.mesh().coordinates(rank).pp;
    for (const parallel::Action& action : programs[static_cast<size_t>(stage)].actions) {
      for (const model::Op& op : parallel::action_ops(layout, stage, action)) {
        cost::Transfer transfer{op.kind, op.axis, op.bytes, 0};
        if (op.kind == model::OpKind::send) {
          transfer.stage_shift = action.peer - stage;
          sum += prices.seconds(transfer)[static_cast<size_t>(rank)];
        } else if (model::is_collective(op.kind)) {
          const double seconds = prices.seconds(transfer)[static_cast<size_t>(rank)];
          const double ranks = layout.mesh().size(op.axis);
          sum += ranks > cores ? seconds * cores / ranks : seconds;
        }
      }
    }
  }
  return sum;
}

// All ranks on one node.
config::RunFile on_cores(config::RunFile run, int64_t cores) {
  run.cluster.gpus_per_node = 64;
  run.cluster.cores = cores;
  return run;
}

void free_communication(config::ClusterConfig& cluster) {
  cluster.nvlink_bandwidth = cluster.nic_bandwidth = 1e30;
  cluster.nvlink_latency = cluster.nic_latency = cluster.message_overhead = 0;
}

void expect_same(const StepResult& a, const StepResult& b) {
  EXPECT_EQ(a.seconds, b.seconds);
  EXPECT_EQ(a.split.values(), b.split.values());
  EXPECT_EQ(a.finish_seconds, b.finish_seconds);
}

TEST(SharedCores, NothingChangesWhereEveryRankHasACore) {
  for (const int64_t cores : {0, 8, 9}) {
    const config::RunFile run = on_cores(small_run(2, 2, 2, 1, 4), cores);
    StepOptions options = no_jitter();
    options.traced_ranks = {0, 5};
    const SharedStep shared = shared_step(run, options);
    EXPECT_EQ(shared.stretch, 1);
    expect_same(shared.step, simulate(run, options));
    EXPECT_EQ(shared.step.traces.size(), 2u);
  }
}

// Waiting for the batch, 1e-5 of these steps, is none of the cores' work.
constexpr double nearly = 1e-4;

// Equal ranks without anything to wait for: each has its share of the cores.
TEST(SharedCores, RanksThatOnlyComputeGetEqualShares) {
  config::RunFile run = small_run(1, 1, 6, 1, 2);
  run.parallel.zero = 0;
  free_communication(run.cluster);
  const StepResult alone = simulate(on_cores(run, 0), no_jitter());
  for (const int64_t cores : {1, 2, 4}) {
    const SharedStep shared = shared_step(on_cores(run, cores), no_jitter());
    const double share = 6.0 / static_cast<double>(cores);
    EXPECT_NEAR(shared.stretch, share, nearly * share);
    EXPECT_NEAR(shared.step.seconds, share * alone.seconds, nearly * share * alone.seconds);
  }
}

// A pipeline's bubbles and the communication leave cores to others: the stretch is less than ranks over
// cores, the cores are busy all the time, and with less stretch they would have to do more than they can.
TEST(SharedCores, TheStretchIsTheSmallestThatTheCoresAllow) {
  const config::RunFile run = on_cores(small_run(2, 2, 2, 1, 4), 3);
  const parallel::Layout layout(run);
  const auto programs = parallel::build_step_programs(layout);
  const StepResult alone = simulate_step(layout, programs, no_jitter());
  const double busy = kernel_sum(alone) + transfer_sum(layout, 3);
  ASSERT_GT(busy, 3 * alone.seconds);

  StepOptions options = no_jitter();
  options.traced_ranks = {3};
  const SharedStep shared = simulate_shared_step(layout, programs, options);
  EXPECT_GT(shared.stretch, 1);
  EXPECT_LT(shared.stretch, 8.0 / 3);
  EXPECT_NEAR(3 * shared.step.seconds, busy, 1e-7 * busy);
  EXPECT_EQ(shared.step.traces.size(), 1u);
  StepOptions less = no_jitter();
  for (int rank = 0; rank < 8; ++rank) less.slow.push_back({rank, shared.stretch * 0.999});
  EXPECT_LT(3 * simulate_step(layout, programs, less).seconds, busy * (1 - 1e-7));
}

// Measured times of collectives, and what giving cores away costs: six ranks on two cores, all of one group.
TEST(SharedCores, CollectivesKeepCoresForTheirShare) {
  config::RunFile run = on_cores(small_run(1, 1, 6, 1, 2), 2);
  run.parallel.zero = 1;
  const double seconds = simulate(run, no_jitter()).seconds;
  // Far from each other, so that each shows: 6 ranks have a core for a third of it.
  run.cluster.all_reduce_times = {{6, 8, seconds / 8}};
  run.cluster.all_gather_times = {{6, 8, seconds / 16}};
  run.cluster.reduce_scatter_times = {{6, 8, seconds / 4}};
  run.cluster.core_switch_seconds = seconds / 64;
  const parallel::Layout layout(run);
  const auto programs = parallel::build_step_programs(layout);
  cost::TransferPrices prices(run, layout.mesh());
  double transfers = 0;
  for (const parallel::Action& action : programs[0].actions) {
    for (const model::Op& op : parallel::action_ops(layout, 0, action)) {
      if (!model::is_collective(op.kind)) continue;
      transfers += prices.seconds({op.kind, op.axis, op.bytes, 0})[0] / 3 + seconds / 64;
    }
  }
  const StepResult alone = simulate(run, no_jitter());
  const double busy = kernel_sum(alone) + 6 * transfers;
  ASSERT_GT(busy, 2 * alone.seconds);
  EXPECT_GT(6 * transfers, 0.1 * busy);
  EXPECT_NEAR(2 * shared_step(run, no_jitter()).step.seconds, busy, nearly * busy);
}

CoreWaits core_waits(const config::RunFile& run) { return shared_step(run, no_jitter()).core_waits; }
double sum(const CoreWaits& waits) { return waits.tp + waits.cp + waits.pp + waits.dp + waits.kernels; }

// What stretching adds to kernels is all booked somewhere: in short bursts after what they wait for, while a
// burst of many time slices is interrupted itself.
TEST(SharedCores, TheWaitForACoreIsSpentBeforeShortBurstsAndWithinLongOnes) {
  config::RunFile run = on_cores(small_run(2, 1, 4, 1, 2), 2);
  const double kernels = kernel_sum(simulate(on_cores(run, 0), no_jitter())) / 8;
  run.cluster.peak_flops_bf16 *= 1e6 * kernels;  // kernels of about a microsecond
  run.cluster.memory_bandwidth *= 1e6 * kernels;
  free_communication(run.cluster);
  const SharedStep fast = shared_step(run, no_jitter());
  const StepResult alone = simulate(on_cores(run, 0), no_jitter());
  const double longer = (fast.stretch - 1) * kernel_sum(alone) / 8;
  EXPECT_GT(fast.stretch, 1);
  EXPECT_NEAR(sum(fast.core_waits), longer, 1e-6 * longer);
  EXPECT_EQ(fast.core_waits.kernels, 0);
  EXPECT_GT(fast.core_waits.tp, 0.5 * longer);  // between most of its kernels
  EXPECT_GT(fast.core_waits.dp, 0);             // before the optimizer
  EXPECT_EQ(fast.core_waits.pp + fast.core_waits.cp, 0);

  config::RunFile slow = on_cores(small_run(1, 1, 4, 1, 2), 2);
  slow.cluster.launch_seconds = 1;  // kernels of 300 time slices
  const CoreWaits waits = core_waits(slow);
  EXPECT_GT(waits.kernels, 0.95 * sum(waits));
  EXPECT_EQ(sum(core_waits(on_cores(run, 8))), 0);
}

// A step's work on the cores has what a worker does between two steps, but not its wait for a batch.
TEST(SharedCores, TheOverheadOfAStepKeepsACoreBusy) {
  config::RunFile run = on_cores(small_run(1, 1, 4, 1, 2), 2);
  const parallel::Layout before(run);
  const auto programs = parallel::build_step_programs(before);
  const double work =
      core_work(before, programs, no_jitter(), simulate_step(before, programs, no_jitter())).seconds;
  run.cluster.step_overhead = 0.25;
  const parallel::Layout after(run);
  const CoreWork with = core_work(after, programs, no_jitter(), simulate_step(after, programs, no_jitter()));
  EXPECT_NEAR(with.seconds - work, 4 * 0.25, 1e-9);
  EXPECT_GT(with.switches, 0);
}

// What takes no time keeps no core busy: "if tp were free" is less than with it, by its cores' work at least.
TEST(SharedCores, FreeTransfersKeepNoCoreBusy) {
  config::RunFile run = on_cores(small_run(4, 1, 1, 1, 2), 2);
  run.cluster.nvlink_bandwidth = 1e8;
  StepOptions free = no_jitter();
  free.free = {PathKind::tp};
  const StepResult with = shared_step(run, no_jitter()).step;
  const StepResult without = shared_step(run, free).step;
  EXPECT_LT(without.seconds, 0.9 * with.seconds);
  const double kernels = kernel_sum(simulate(on_cores(run, 0), free));
  EXPECT_NEAR(without.seconds, kernels / 2, 0.01 * without.seconds);
}

// Two nodes of four ranks are as stretched as one node of four is.
TEST(SharedCores, EveryNodeHasItsOwnCores) {
  config::RunFile run = small_run(1, 1, 8, 1, 2);
  run.parallel.zero = 0;
  free_communication(run.cluster);
  run.cluster.gpus_per_node = 4;
  run.cluster.cores = 2;
  EXPECT_NEAR(shared_step(run, no_jitter()).stretch, 2, nearly);
  run.cluster.cores = 4;
  EXPECT_EQ(shared_step(run, no_jitter()).stretch, 1);
}

// The slow ranks that were asked for stay slow, on top of the stretch.
TEST(SharedCores, JitterAndSlowRanksStay) {
  const config::RunFile run = on_cores(small_run(1, 1, 4, 1, 2), 2);
  StepOptions options;
  options.slow = {{1, 3}};
  const SharedStep shared = shared_step(run, options);
  EXPECT_EQ(shared.step.slowest_rank, 1);
  EXPECT_GE(shared.stretch, 1);
  const StepResult alone = simulate(run, options);
  EXPECT_GE(2 * shared.step.seconds, kernel_sum(alone));
}

// A rank that is slow by itself is stretched as well: its kernels stay three times as long as another's.
TEST(SharedCores, ANamedSlowRankIsStretchedToo) {
  const config::RunFile run = on_cores(small_run(1, 1, 4, 1, 2), 1);
  StepOptions options = no_jitter();
  options.slow = {{1, 3}};
  const SharedStep shared = shared_step(run, options);
  EXPECT_GT(shared.stretch, 1.1);
  EXPECT_NEAR(shared.step.kernel_seconds[1], 3 * shared.step.kernel_seconds[0],
              1e-9 * shared.step.kernel_seconds[1]);
}

}  // namespace
}  // namespace lockstep::sim
