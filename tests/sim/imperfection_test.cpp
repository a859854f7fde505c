// Pauses, lost packets and named factors: where they strike, how they are booked, and what "free" takes away.
#include "sim/imperfection.hpp"

#include <gtest/gtest.h>

#include <algorithm>

#include "base/json.hpp"
#include "sim/report.hpp"
#include "sim/small_runs.hpp"

namespace lockstep::sim::test {
namespace {

StepOptions collecting(double seconds) {
  StepOptions options;
  options.garbage_collection_seconds = seconds;
  options.garbage_collection_interval = 1;
  return options;
}

void expect_same(const StepResult& a, const StepResult& b) {
  EXPECT_EQ(a.seconds, b.seconds);
  EXPECT_EQ(a.finish_seconds, b.finish_seconds);
  EXPECT_EQ(a.split.values(), b.split.values());
}

TEST(Imperfection, FreePausesAreNone) {
  const config::RunFile run = small_run(2, 2, 4, 1, 4);
  StepOptions free = collecting(0.1);
  EXPECT_GT(simulate(run, free).seconds, 1.5 * simulate(run, collecting(0)).seconds);
  free.free = {PathKind::pause};
  expect_same(simulate(run, free), simulate(run, collecting(0)));
}

// On nodes of one GPU all transfers may lose packets.
TEST(Imperfection, FreeTransfersLoseNothing) {
  config::RunFile run = small_run(2, 2, 4, 1, 4);
  run.cluster.gpus_per_node = 1;
  StepOptions losing;
  losing.retransmit_probability = 0.1;
  losing.retransmit_seconds = 0.05;
  StepOptions whole = losing;
  whole.retransmit_probability = 0;
  const double lossless = simulate(run, whole).seconds;
  EXPECT_GT(simulate(run, losing).seconds, 2 * lossless);
  losing.free = whole.free = {PathKind::tp, PathKind::pp, PathKind::dp};
  expect_same(simulate(run, losing), simulate(run, whole));
  losing.free = {PathKind::tp, PathKind::pp};
  EXPECT_GT(simulate(run, losing).seconds, simulate(run, whole).seconds) << "those of dp stay";
}

// Stages 0 and 1 are on one node, 2 and 3 on the next.
TEST(Imperfection, AMessageLeavesTheNodeOfItsSender) {
  config::RunFile run = small_run(1, 4, 1, 1, 2);
  run.cluster.gpus_per_node = 2;
  const parallel::Layout layout(run);
  const auto programs = parallel::build_step_programs(layout);
  StepOptions options;
  options.retransmit_probability = 0.1;
  const auto leaves = [&](int from, int to) {
    const RareEvents events = rare_events(layout, programs[static_cast<size_t>(from)], {from}, options);
    return events.leaves_node(0, {model::OpKind::send, model::Axis::pp, 8, (to - from + 4) % 4});
  };
  EXPECT_FALSE(leaves(0, 1));
  EXPECT_TRUE(leaves(1, 2));
  EXPECT_FALSE(leaves(2, 3));
  EXPECT_FALSE(leaves(1, 0));
  EXPECT_TRUE(leaves(2, 1));
  EXPECT_FALSE(leaves(3, 2));
  const RareEvents events = rare_events(layout, programs[0], {0}, options);
  EXPECT_TRUE(events.leaves_node(0, {model::OpKind::all_reduce, model::Axis::pp, 8, 0}));
}

TEST(Imperfection, ARankThatIsNamedTwiceIsSlowTwice) {
  const config::RunFile run = small_run(2, 2, 4, 1, 4);
  StepOptions once = no_jitter(), twice = no_jitter();
  once.slow = {{5, 1.5}};
  twice.slow = {{5, 1.2}, {3, 1}, {5, 1.25}};
  EXPECT_NEAR(simulate(run, twice).seconds, simulate(run, once).seconds, 1e-12);
  const parallel::Layout layout(run);
  EXPECT_DOUBLE_EQ(time_factors(layout, twice)[5], 1.5);
  EXPECT_EQ(time_factors(layout, twice)[4], 1);
}

// A pause is no kernel: it is booked by itself, and shows in the trace from its start to its end, where the
// rank does nothing else.
TEST(Imperfection, PausesAreBookedAndTraced) {
  const config::RunFile run = small_run(2, 2, 4, 1, 4);
  const StepResult without = simulate(run, collecting(0));
  StepOptions options = collecting(0.02);
  options.traced_ranks = {6};
  const StepResult with = simulate(run, options);
  for (size_t rank = 0; rank < 16; ++rank) {
    EXPECT_DOUBLE_EQ(with.pause_seconds[rank], 0.02);
    EXPECT_EQ(without.pause_seconds[rank], 0);
    EXPECT_NEAR(with.kernel_seconds[rank], without.kernel_seconds[rank], 1e-12);
  }
  EXPECT_NEAR(with.split.compute, without.split.compute + 0.02, 1e-12);
  EXPECT_NEAR(with.split.total(), with.seconds, 1e-12);
  EXPECT_DOUBLE_EQ(simulate_json(run, with, {with.seconds}, {})["pause_seconds"].get<double>(), 0.02);
  EXPECT_FALSE(simulate_json(run, without, {without.seconds}, {}).contains("pause_seconds"));

  const observe::SpanFile& trace = with.traces.at(0);
  EXPECT_EQ(trace.dropped, 0);
  int pauses = 0;
  for (const observe::Span& pause : trace.spans) {
    if (trace.names[pause.name] != "pause") continue;
    ++pauses;
    EXPECT_EQ(pause.end_ns - pause.start_ns, 20'000'000);
    for (const observe::Span& other : trace.spans) {
      if (other.stream != observe::Stream::compute) continue;
      EXPECT_TRUE(other.end_ns <= pause.start_ns || other.start_ns >= pause.end_ns)
          << trace.names[other.name];
    }
  }
  EXPECT_EQ(pauses, 1);
}

// The report names who is busier than others of its stage, or nobody.
TEST(Imperfection, TheReportNamesTheBusiestOfItsStageOrNobody) {
  const config::RunFile run = small_run(2, 4, 2, 1, 4);
  StepOptions options = no_jitter();
  const auto text = [&] {
    const StepResult step = simulate(run, options);
    return simulate_text(run, step, {step.seconds}, {});
  };
  EXPECT_NE(text().find("No rank is busier"), std::string::npos) << text();
  options.slow = {{1, 1.01}};
  EXPECT_NE(text().find("Busiest: rank 1 "), std::string::npos) << text();
}

}  // namespace
}  // namespace lockstep::sim::test
