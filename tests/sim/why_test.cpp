// The critical path and what the report says of it.
#include "sim/why.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>
#include <stdexcept>

#include "base/json.hpp"
#include "sim/small_runs.hpp"

namespace lockstep::sim::test {
namespace {

using tests::Drawn;

struct Explained {
  StepResult step;
  Why why;
};

Explained explained(const config::RunFile& run, StepOptions options) {
  const parallel::Layout layout(run);
  const auto programs = parallel::build_step_programs(layout);
  Explained out;
  out.step = simulate_step(layout, programs, options);
  out.why = explain(layout, programs, options, out.step);
  return out;
}

double total(const CriticalPath& path) {
  return std::accumulate(path.seconds.begin(), path.seconds.end(), 0.0);
}

// Whatever the layout, the parts of the path add up to the step. Freeing one kind can save at most what it
// has on the path: the rest of the chain is still there.
TEST(Why, ThePathAddsUpAndBoundsWhatFreeingAKindSaves) {
  Drawn drawn(5);
  for (int i = 0; i < 40; ++i) {
    config::RunFile run = drawn.run();
    if (i % 2 == 1) drawn.crowd(run);
    StepOptions options = step_options(run.simulate);
    if (i % 4 == 3) drawn.disturb(options, run.parallel.world_size());
    options.contention = i % 2 == 0;
    const Explained e = explained(run, options);
    EXPECT_NEAR(total(e.why.path), e.step.seconds, 1e-9 * e.step.seconds) << i;
    double own = 0;
    for (const CriticalPath::Rank& r : e.why.path.ranks) own += r.seconds;
    const auto on_path = [&](PathKind kind) { return e.why.path.seconds[static_cast<size_t>(kind)]; };
    const double transfers =
        on_path(PathKind::tp) + on_path(PathKind::cp) + on_path(PathKind::pp) + on_path(PathKind::dp);
    EXPECT_NEAR(own, e.step.seconds - transfers, 1e-9 * e.step.seconds) << i;
    for (const Why::IfFree& free : e.why.if_free) {
      EXPECT_LE(free.seconds, e.step.seconds * (1 + 1e-12)) << i;
      if (options.contention) continue;  // there freeing one kind also makes room for others
      EXPECT_GE(free.seconds, e.step.seconds - on_path(free.kind) - 1e-9 * e.step.seconds)
          << i << " " << path_kind_names[static_cast<size_t>(free.kind)];
    }
  }
}

// One rank alone: the path is its own work, to the last op.
TEST(Why, OfOneRankThePathIsItsWork) {
  const config::RunFile run = small_run(1, 1, 1, 1, 3);
  const Explained e = explained(run, no_jitter());
  EXPECT_NEAR(total(e.why.path), e.step.seconds, 1e-12 * e.step.seconds);
  ASSERT_EQ(e.why.path.ranks.size(), 1u);
  EXPECT_EQ(e.why.path.ranks[0].rank, 0);
  for (const PathKind kind : {PathKind::tp, PathKind::cp, PathKind::pp, PathKind::dp, PathKind::pause}) {
    EXPECT_EQ(e.why.path.seconds[static_cast<size_t>(kind)], 0);
  }
}

TEST(Why, ASlowRankIsNamedLiesOnThePathAndItsCostIsTold) {
  const config::RunFile run = small_run(2, 2, 4, 1, 8);
  StepOptions options = no_jitter();
  const double healthy = simulate(run, options).seconds;
  options.slow = {{5, 1.5}};
  const Explained e = explained(run, options);
  ASSERT_FALSE(e.why.slowest.empty());
  EXPECT_EQ(e.why.slowest[0].rank, 5);
  EXPECT_EQ(e.why.slowest[0].reasons, "simulate.slow x1.5");
  EXPECT_GT(e.step.seconds, 1.2 * healthy);
  EXPECT_NEAR(e.why.without_slowest, healthy, 0.02 * healthy);
  EXPECT_EQ(e.why.path.ranks[0].rank, 5) << "most of the path is its work";
  const Json json = why_json(e.why);
  EXPECT_EQ(json["slowest"][0]["rank"], 5);
  const std::string text = why_text(parallel::Mesh(run), e.why, {});
  EXPECT_NE(text.find("simulate.slow x1.5"), std::string::npos) << text;
}

TEST(Why, NamedSourcesAreToldAsReasons) {
  const config::RunFile run = small_run(2, 2, 4, 1, 4);
  StepOptions options = step_options(run.simulate);
  options.throttled_nodes = 1;
  options.throttle_factor = 1.25;
  options.garbage_collection_seconds = 0.01;
  options.garbage_collection_interval = 1;
  for (int rank = 0; rank < 16; ++rank) options.slow_links.push_back({rank, 2});
  const Explained e = explained(run, options);
  const std::string& why = e.why.slowest[0].reasons;
  EXPECT_NE(why.find("throttled x1.25"), std::string::npos) << why;
  EXPECT_NE(why.find("garbage collection 0.01 s"), std::string::npos) << why;
  EXPECT_NE(why.find("slow link x2"), std::string::npos) << why;
  EXPECT_NE(why.find("own speed x"), std::string::npos) << why;
  EXPECT_GT(e.why.path.seconds[static_cast<size_t>(PathKind::pause)], 0.0099);
}

const Why::Caused& caused(const Why& why, std::string_view name) {
  const auto found = std::find_if(why.causes.begin(), why.causes.end(),
                                  [&](const Why::Caused& c) { return c.cause.name == name; });
  if (found == why.causes.end()) throw std::runtime_error("no cause " + std::string(name));
  return *found;
}

// Everything at once: each cause names its ranks, and the step without it is the one of a run file that does
// not have it.
TEST(Why, EachCauseIsTakenFromAllRanksThatHaveIt) {
  config::RunFile run = small_run(2, 2, 4, 1, 8);
  run.cluster.gpus_per_node = 2;
  StepOptions options = step_options(run.simulate);
  options.slow = {{5, 1.5}};
  options.slow_links = {{3, 20}};
  options.throttled_nodes = 0.4;
  options.throttle_factor = 1.3;
  options.garbage_collection_seconds = 0.003;
  options.garbage_collection_interval = 2;
  options.retransmit_probability = 0.01;
  options.retransmit_seconds = 0.002;
  options.daily_heat = 0.1;
  const Explained e = explained(run, options);
  const auto seconds_if = [&](void (*remove)(StepOptions&)) {
    StepOptions other = options;
    remove(other);
    return simulate(run, other).seconds;
  };
  ASSERT_EQ(e.why.causes.size(), 8u);
  EXPECT_EQ(caused(e.why, "slow ranks").cause.ranks, (std::vector<int>{5}));
  EXPECT_EQ(caused(e.why, "slow links").cause.ranks, (std::vector<int>{3}));
  for (const char* of_all : {"heat of the hour", "speeds of ranks", "jitter of ops"}) {
    EXPECT_EQ(caused(e.why, of_all).cause.ranks.size(), 16u) << of_all;
  }
  for (const char* of_some : {"throttled nodes", "garbage collection"}) {
    EXPECT_GT(caused(e.why, of_some).cause.ranks.size(), 0u) << of_some;
    EXPECT_LT(caused(e.why, of_some).cause.ranks.size(), 16u) << of_some;
  }
  EXPECT_EQ(caused(e.why, "slow links").without, seconds_if([](StepOptions& o) { o.slow_links = {}; }));
  EXPECT_EQ(caused(e.why, "slow ranks").without, seconds_if([](StepOptions& o) { o.slow = {}; }));
  EXPECT_EQ(caused(e.why, "throttled nodes").without,
            seconds_if([](StepOptions& o) { o.throttle_factor = 1; }));
  EXPECT_EQ(caused(e.why, "garbage collection").without,
            seconds_if([](StepOptions& o) { o.garbage_collection_seconds = 0; }));
  EXPECT_EQ(caused(e.why, "lost packets").without,
            seconds_if([](StepOptions& o) { o.retransmit_seconds = 0; }));
  EXPECT_EQ(caused(e.why, "heat of the hour").without, seconds_if([](StepOptions& o) { o.hour = 3; }));
  EXPECT_EQ(e.why.without_causes, simulate(run, no_jitter()).seconds);
  EXPECT_LT(caused(e.why, "slow links").without, 0.95 * e.step.seconds);
  EXPECT_EQ(why_json(e.why)["causes"][0]["ranks"], (std::vector<int>{5}));
}

// Packets that are counted as lost are those that the simulation loses: on a chain of two ranks that each
// message has to pass, one after another.
TEST(Why, LostPacketsAreCountedAsTheyAreLost) {
  config::RunFile run = small_run(1, 2, 1, 1, 1);
  run.cluster.gpus_per_node = 1;
  run.simulate.op_jitter = run.simulate.rank_jitter = run.simulate.tail_probability = 0;
  StepOptions options = step_options(run.simulate);
  const double healthy = simulate(run, options).seconds;
  options.retransmit_probability = 0.5;
  options.retransmit_seconds = 10;
  const parallel::Layout layout(run);
  const auto programs = parallel::build_step_programs(layout);
  for (options.seed = 0; options.seed < 8; ++options.seed) {
    const LostPackets lost = lost_packets(layout, programs, options);
    EXPECT_NEAR(simulate(run, options).seconds, healthy + 10.0 * static_cast<double>(lost.count), 1e-6)
        << options.seed;
  }
}

// All ranks are alike but for the output matrix, which the last stage alone has.
config::RunFile run_with_a_large_output() {
  config::RunFile run = small_run(2, 4, 2, 1, 4);
  run.model.vocab = 65536;
  return run;
}

TEST(Why, WithoutJitterNobodyIsSlow) {
  const config::RunFile run = run_with_a_large_output();
  const Explained e = explained(run, no_jitter());
  ASSERT_GT(e.step.kernel_seconds[15], 1.01 * e.step.kernel_seconds[0]);
  for (const double behind : e.step.behind_seconds) EXPECT_EQ(behind, 0);
  EXPECT_TRUE(e.why.slowest.empty());
  EXPECT_TRUE(e.why.causes.empty());
  EXPECT_EQ(e.why.without_slowest, e.step.seconds);
  EXPECT_EQ(e.why.without_causes, e.step.seconds);
  const std::string text = why_text(parallel::Mesh(run), e.why, {});
  EXPECT_NE(text.find("Nothing slows the step down"), std::string::npos) << text;
  EXPECT_NE(text.find("No rank's own kernels take longer"), std::string::npos) << text;
  EXPECT_EQ(text.find("()"), std::string::npos) << text;
}

// A rank of the first stage is slow, though those of the last stage compute longer.
TEST(Why, RanksAreComparedWithTheirOwnStage) {
  const config::RunFile run = run_with_a_large_output();
  StepOptions options = no_jitter();
  options.slow = {{1, 1.01}};
  const Explained e = explained(run, options);
  ASSERT_LT(e.step.kernel_seconds[1], e.step.kernel_seconds[15]);
  EXPECT_EQ(e.step.slowest_rank, 1);
  ASSERT_EQ(e.why.slowest.size(), 1u);
  EXPECT_EQ(e.why.slowest[0].rank, 1);
  EXPECT_NEAR(e.why.slowest[0].behind_seconds, 0.01 * e.step.kernel_seconds[0], 1e-9);
}

// A pause counts among what a rank holds others up with, and is taken away with it.
TEST(Why, ARankThatPausesIsSlow) {
  const config::RunFile run = small_run(2, 2, 4, 1, 8);
  StepOptions options = step_options(run.simulate);
  options.op_jitter = options.rank_jitter = options.tail_probability = 0;
  const double healthy = simulate(run, options).seconds;
  options.garbage_collection_seconds = 1;
  options.garbage_collection_interval = 16;
  for (; options.step < 16; ++options.step) {
    const Explained e = explained(run, options);
    const auto collecting = static_cast<size_t>(std::count_if(
        e.step.pause_seconds.begin(), e.step.pause_seconds.end(), [](double s) { return s > 0; }));
    if (collecting == 0 || collecting > 3) continue;
    EXPECT_GT(e.step.seconds, 1);
    EXPECT_EQ(e.why.slowest.size(), collecting);
    EXPECT_EQ(e.why.slowest[0].reasons, "garbage collection 1 s");
    EXPECT_NEAR(e.why.without_slowest, healthy, 1e-9);
    EXPECT_NEAR(caused(e.why, "garbage collection").without, healthy, 1e-9);
    return;
  }
  FAIL() << "no step in which one to three ranks pause";
}

}  // namespace
}  // namespace lockstep::sim::test
