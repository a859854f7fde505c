// The simulator on several threads gives the bits that it gives on one. Also run under ThreadSanitizer.
#include <gtest/gtest.h>

#include "base/error.hpp"
#include "parallel/drawn_run.hpp"
#include "sim/drawn_layouts.hpp"

namespace lockstep::tests {
namespace {

void expect_same_bits(const sim::StepResult& a, const sim::StepResult& b) {
  EXPECT_EQ(a.seconds, b.seconds);
  EXPECT_EQ(a.split.values(), b.split.values());
  EXPECT_EQ(a.finish_seconds, b.finish_seconds);
  EXPECT_EQ(a.kernel_seconds, b.kernel_seconds);
  EXPECT_EQ(a.pause_seconds, b.pause_seconds);
  EXPECT_EQ(a.behind_seconds, b.behind_seconds);
  EXPECT_EQ(a.slowest_rank, b.slowest_rank);
  EXPECT_EQ(std::pair(a.seconds_p50, a.seconds_p99), std::pair(b.seconds_p50, b.seconds_p99));
  EXPECT_EQ(a.bubble_fraction, b.bubble_fraction);
  EXPECT_EQ(a.ops, b.ops);
  ASSERT_EQ(a.phases.size(), b.phases.size());
  for (size_t i = 0; i < a.phases.size(); ++i) {
    EXPECT_EQ(a.phases[i].start, b.phases[i].start);
    EXPECT_EQ(a.phases[i].end, b.phases[i].end);
  }
  ASSERT_EQ(a.traces.size(), b.traces.size());
  for (size_t i = 0; i < a.traces.size(); ++i) {
    ASSERT_EQ(a.traces[i].spans.size(), b.traces[i].spans.size());
    EXPECT_EQ(a.traces[i].names, b.traces[i].names);
    for (size_t j = 0; j < a.traces[i].spans.size(); ++j) {
      EXPECT_EQ(a.traces[i].spans[j].start_ns, b.traces[i].spans[j].start_ns);
      EXPECT_EQ(a.traces[i].spans[j].end_ns, b.traces[i].spans[j].end_ns);
      EXPECT_EQ(a.traces[i].spans[j].name, b.traces[i].spans[j].name);
    }
  }
}

TEST(Threads, AnyNumberGivesTheSameBits) {
  Drawn drawn(5);
  int pipelines = 0;
  for (int i = 0; i < 40; ++i) {
    config::RunFile run = drawn.run();
    if (i % 2 == 0) drawn.crowd(run);
    SCOPED_TRACE(describe(run));
    sim::StepOptions options = sim::step_options(run.simulate);
    drawn.disturb(options, run.parallel.world_size());
    options.traced_ranks = {0};
    const parallel::Layout layout(run);
    const auto programs = parallel::build_step_programs(layout);
    const sim::StepResult one = sim::simulate_step(layout, programs, options);
    pipelines += layout.stages() > 1 ? 1 : 0;
    for (const int threads : {2, 3, 16}) {
      options.threads = threads;
      expect_same_bits(one, sim::simulate_step(layout, programs, options));
      if (HasFailure()) return;
    }
  }
  EXPECT_GT(pipelines, 10);
}

// A failure of one stage reaches the caller, and so does a message that never comes.
TEST(Threads, FailuresReachTheCaller) {
  config::RunFile run = sample_run(1, 4, 1, 1, 4);
  run.cluster = small_cluster(4, 96);
  const parallel::Layout layout(run);
  const auto whole = parallel::build_step_programs(layout);
  sim::StepOptions options = sim::step_options(run.simulate);
  options.threads = 4;
  for (const auto kind : {parallel::ActionKind::send_forward, parallel::ActionKind::receive_forward}) {
    auto programs = whole;
    auto& actions = programs[1].actions;
    const auto of_kind = [&](const parallel::Action& a) { return a.kind == kind; };
    const auto found = std::find_if(actions.begin(), actions.end(), of_kind);
    if (kind == parallel::ActionKind::send_forward) {
      actions.erase(found);
    } else {
      actions.insert(found, *found);  // posted twice
    }
    EXPECT_THROW(sim::simulate_step(layout, programs, options), RunError);
  }
}

}  // namespace
}  // namespace lockstep::tests
