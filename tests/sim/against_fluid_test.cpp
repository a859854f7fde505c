// Whole steps: the simulator's rules for what goes on at the same time against flows that share the real
// links moment by moment.
#include <gtest/gtest.h>

#include <algorithm>
#include <vector>

#include "parallel/drawn_run.hpp"
#include "sim/drawn_layouts.hpp"
#include "sim/fluid_step.hpp"
#include "sim/simulate_step.hpp"

namespace lockstep::tests {
namespace {

// Seconds of the simulator over those of the fluid one.
double ratio_of(const config::RunFile& run) {
  const parallel::Layout layout(run);
  const auto programs = parallel::build_step_programs(layout);
  sim::StepOptions options = sim::step_options(run.simulate);
  options.jitter = false;
  return sim::simulate_step(layout, programs, options).seconds / fluid_step(layout, programs).seconds;
}

// On NICs alone, slow enough that messages and reductions take longer than the computation.
config::RunFile run_on_nics(int64_t tp, int64_t cp, int64_t pp, int64_t dp, config::ScheduleKind schedule) {
  config::RunFile run = sample_run(tp, pp, dp, 1, 12);
  run.model.hidden = 256;
  run.model.layers = pp;
  run.parallel.cp = cp;
  run.parallel.schedule = schedule;
  run.parallel.replicas = dp;
  run.parallel.zero = 0;
  run.train.sequence = 64;
  run.cluster = small_cluster(1, 64);
  run.cluster.nic_bandwidth = 2e8;
  run.cluster.gpus = run.parallel.world_size();
  run.cluster.low_latency_protocols = false;  // the links alone
  run.cluster.collective_algorithm = config::CollectiveAlgorithm::ring;
  return run;
}

// Nothing shares a link with anything: both follow the same rules, whatever goes on beside.
TEST(AgainstFluid, OneAxisAlone) {
  for (const auto schedule : {config::ScheduleKind::gpipe, config::ScheduleKind::one_f_one_b}) {
    EXPECT_NEAR(ratio_of(run_on_nics(4, 1, 1, 1, schedule)), 1, 1e-6);
    EXPECT_NEAR(ratio_of(run_on_nics(1, 1, 2, 1, schedule)), 1, 1e-6);
    for (const int64_t zero : {0, 1, 2, 3}) {
      config::RunFile run = run_on_nics(1, 1, 1, 4, schedule);
      run.parallel.zero = zero;
      run.model.layers = 4;
      run.cluster.communication_slowdown = 0.3;
      EXPECT_NEAR(ratio_of(run), 1, 1e-6) << "zero " << zero;
    }
  }
}

config::RunFile small_draw(Drawn& drawn, bool crowd) {
  for (;;) {
    config::RunFile run = drawn.run();
    if (crowd) drawn.crowd(run);
    run.cluster.low_latency_protocols = false;
    if (run.parallel.world_size() >= 4 && run.parallel.world_size() <= 32) return run;
  }
}

// Every NIC's bandwidth through all switches.
config::RunFile without_bottlenecks(config::RunFile run) {
  run.cluster.rack_oversubscription = run.cluster.pod_oversubscription = 1;
  run.cluster.rack_uplinks = run.cluster.pod_uplinks = 0;
  return run;
}

struct Spread {
  double median = 0, least = 0, most = 0;
  double close = 0;  // share of draws within 5 %
};

template <class Change>
Spread spread_of(bool crowd, Change change) {
  constexpr int draws = 40;
  Drawn drawn(11);
  std::vector<double> ratios;
  while (ratios.size() < draws) ratios.push_back(ratio_of(change(small_draw(drawn, crowd))));
  std::sort(ratios.begin(), ratios.end());
  const auto close =
      std::count_if(ratios.begin(), ratios.end(), [](double r) { return r > 0.95 && r < 1.05; });
  return {ratios[draws / 2], ratios.front(), ratios.back(), static_cast<double>(close) / draws};
}

// Below 1 by what the simulator does not count (the tests at the end); above by what it counts longer than it
// lasts (a transfer is slowed while a collective that the rank has queued still waits for others) and by
// latency that passes meanwhile (fluid_prices_test.cpp). Of 1,400 draws the least is 0.60, the most 1.16, and
// 6 of 7 are within 5 %.
TEST(AgainstFluid, DrawnLayoutsWhereOnlyPortsAreShared) {
  for (const bool crowd : {false, true}) {
    const Spread s = spread_of(crowd, without_bottlenecks);
    SCOPED_TRACE(crowd ? "crowded" : "plain");
    EXPECT_NEAR(s.median, 1, 0.01);
    EXPECT_GT(s.least, 0.7);
    EXPECT_LT(s.most, 1.15);
    EXPECT_GE(s.close, 0.8);
  }
}

// Uplinks too: a price counts all groups of its axis on them, whose stages mostly take turns. Of 1,400 draws
// the least is 0.67, the most 2.9, and 7 of 10 are within 5 %.
TEST(AgainstFluid, DrawnLayouts) {
  for (const bool crowd : {false, true}) {
    const Spread s = spread_of(crowd, [](config::RunFile run) { return run; });
    SCOPED_TRACE(crowd ? "crowded" : "plain");
    EXPECT_NEAR(s.median, 1, 0.02);
    EXPECT_GT(s.least, 0.7);
    EXPECT_LT(s.most, 2);
    EXPECT_GE(s.close, 0.6);
  }
}

// What the simulator's rules leave out or count too often, each in the smallest case that shows it.

// Messages of two senders, forward and backward, share the port into their receiver: nobody counts them
// together. Three ranks that do nothing else.
TEST(AgainstFluid, MessagesThatMeetAtTheirReceiver) {
  config::RunFile run = run_on_nics(1, 1, 3, 1, config::ScheduleKind::interleaved);
  run.parallel.virtual_stages = 2;
  run.model.layers = 6;
  run.train.global_batch = 24;
  run.cluster.nic_bandwidth = 2e7;
  const double ratio = ratio_of(run);
  EXPECT_GT(ratio, 0.68);
  EXPECT_LT(ratio, 1.01);
}

// A message comes into a rank beside the rank's own collective: only what the rank sends is counted.
TEST(AgainstFluid, MessagesIntoARankWithACollective) {
  const double ratio = ratio_of(run_on_nics(1, 2, 2, 1, config::ScheduleKind::one_f_one_b));
  EXPECT_GT(ratio, 0.88);
  EXPECT_LT(ratio, 1.01);
}

// Messages that wait for each other when a reduction is queued: it is slowed by them, they are not by it.
TEST(AgainstFluid, ACollectiveBesideABacklogOfMessages) {
  const double ratio = ratio_of(run_on_nics(1, 1, 2, 2, config::ScheduleKind::gpipe));
  EXPECT_GT(ratio, 0.86);
  EXPECT_LT(ratio, 1.01);
}

// Three stages' groups cross one uplink, but not at once, as their prices say.
TEST(AgainstFluid, StagesThatTakeTurnsOnAnUplink) {
  config::RunFile run = run_on_nics(1, 1, 3, 2, config::ScheduleKind::interleaved);
  run.parallel.virtual_stages = 2;
  run.parallel.zero = 3;
  run.parallel.gradient_scatter = config::GradientScatter::micro_batch;
  run.model.layers = 6;
  run.train.global_batch = 8;
  run.cluster.gpus_per_pod = 3;
  run.cluster.pod_oversubscription = 3;
  run.cluster.nic_bandwidth = 2e10;
  EXPECT_NEAR(ratio_of(without_bottlenecks(run)), 1, 0.02);
  const double ratio = ratio_of(run);
  EXPECT_GT(ratio, 0.99);
  EXPECT_LT(ratio, 1.36);
}

}  // namespace
}  // namespace lockstep::tests
