// The critical path and what the report says of it.
#include "sim/why.hpp"

#include <gtest/gtest.h>

#include <numeric>

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
  const Explained e = explained(run, options);
  const std::string& why = e.why.slowest[0].reasons;
  EXPECT_NE(why.find("throttled x1.25"), std::string::npos) << why;
  EXPECT_NE(why.find("garbage collection 0.01 s"), std::string::npos) << why;
  EXPECT_GT(e.why.path.seconds[static_cast<size_t>(PathKind::pause)], 0.0099);
}

}  // namespace
}  // namespace lockstep::sim::test
