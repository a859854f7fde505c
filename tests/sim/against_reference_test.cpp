// The fast simulator against the plain event-queue one.
#include <gtest/gtest.h>

#include <algorithm>

#include "parallel/drawn_run.hpp"
#include "sim/drawn_layouts.hpp"
#include "sim/reference_simulator.hpp"

namespace lockstep::tests {
namespace {

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
constexpr int fewer = 4;  // draws in a build that is ten times slower
#else
constexpr int fewer = 1;
#endif

// Idle time of each stage by the schedule alone, and the bubble's share, from the plain simulator.
struct Idle {
  std::vector<double> by_stage;
  double share = 0;
};
Idle idle_of(const parallel::Layout& layout, std::vector<parallel::Program> programs,
             Communication communication) {
  for (parallel::Program& program : programs) {
    std::erase_if(program.actions, [](const parallel::Action& a) {
      return !parallel::is_pass(a.kind) && a.peer < 0;  // messages have a peer
    });
  }
  sim::StepOptions none;
  none.jitter = false;
  const ReferenceResult r = reference_step(layout, programs, none, communication);
  double first = 1e300, last = 0;
  for (const ReferenceRank& rank : r.ranks) {
    first = std::min(first, rank.first_forward);
    last = std::max(last, rank.last_backward);
  }
  Idle idle;
  for (int s = 0; s < layout.stages(); ++s) {
    const double busy = r.ranks[static_cast<size_t>(layout.mesh().rank({0, 0, s, 0}))].passes;
    idle.by_stage.push_back(last - first - busy);
    idle.share += (1 - busy / (last - first)) / layout.stages();
  }
  return idle;
}

void expect_close(double a, double b, double scale, const std::string& what) {
  EXPECT_NEAR(a, b, 1e-9 * scale) << what;
}

const sim::Phase& phase_of(const sim::StepResult& r, std::string_view name) {
  return *std::find_if(r.phases.begin(), r.phases.end(), [&](const auto& p) { return p.name == name; });
}

// Phases and the spread of ends, from the plain simulator's ranks.
void compare_times(const sim::StepResult& fast, const ReferenceResult& plain) {
  double first_forward = 1e300, last_backward = 0, longest_load = 0;
  std::vector<double> finish;
  for (const ReferenceRank& r : plain.ranks) {
    first_forward = std::min(first_forward, r.first_forward);
    last_backward = std::max(last_backward, r.last_backward);
    longest_load = std::max(longest_load, r.data);
    finish.push_back(r.finish);
  }
  std::sort(finish.begin(), finish.end());
  const double scale = plain.seconds;
  EXPECT_EQ(phase_of(fast, "data").start, 0);
  expect_close(phase_of(fast, "data").end, longest_load, scale, "end of the data phase");
  expect_close(phase_of(fast, "forward").start, first_forward, scale, "first forward");
  expect_close(phase_of(fast, "backward").end, last_backward, scale, "last backward");
  expect_close(phase_of(fast, "optimizer").end, finish.back(), scale, "end of the optimizer");
  expect_close(phase_of(fast, "barrier").start, finish.front(), scale, "start of the barrier");
  expect_close(phase_of(fast, "barrier").end, finish.back(), scale, "end of the barrier");
  // At least half, and 99 of a hundred, of the ranks are done by then; not so just before.
  const auto done_by = [&](double seconds) {
    return static_cast<double>(std::upper_bound(finish.begin(), finish.end(), seconds) - finish.begin()) /
           static_cast<double>(finish.size());
  };
  for (const auto& [seconds, share] : {std::pair{fast.seconds_p50, 0.5}, std::pair{fast.seconds_p99, 0.99}}) {
    EXPECT_GE(done_by(seconds + 1e-9 * scale), share);
    EXPECT_LT(done_by(seconds - 1e-9 * scale), share);
  }
}

void compare(const config::RunFile& run, const sim::StepOptions& options, bool uniform) {
  const parallel::Layout layout(run);
  const auto programs = parallel::build_step_programs(layout);
  const sim::StepResult fast = sim::simulate_step(layout, programs, options);
  const ReferenceResult plain = reference_step(layout, programs, options, Communication::all);
  const double scale = plain.seconds;

  expect_close(fast.seconds, plain.seconds, scale, "step");
  EXPECT_EQ(fast.ops, plain.ops);
  compare_times(fast, plain);
  const Idle idle = idle_of(layout, programs, Communication::no_messages);
  cost::StepSplit sums;
  for (size_t i = 0; i < plain.ranks.size(); ++i) {
    const ReferenceRank& r = plain.ranks[i];
    expect_close(fast.finish_seconds[i], r.finish, scale, "finish of rank " + std::to_string(i));
    const double pipeline = r.message + r.pp_meeting;
    const double budget =
        idle.by_stage[static_cast<size_t>(layout.mesh().coordinates(static_cast<int>(i)).pp)];
    const double bubble = std::min(budget, pipeline + r.dp);
    sums.bubble += bubble;
    sums.pp += std::max(0.0, pipeline - budget);
    sums.dp += r.dp - (bubble - std::min(budget, pipeline));
    sums.tp += r.tp;
    sums.cp += r.cp;
    sums.data += r.data;
    sums.optimizer += r.optimizer;
    sums.barrier += plain.seconds - r.finish;
  }
  const double n = static_cast<double>(plain.ranks.size());
  expect_close(fast.split.tp, sums.tp / n, scale, "tp");
  expect_close(fast.split.cp, sums.cp / n, scale, "cp");
  expect_close(fast.split.data, sums.data / n, scale, "data");
  expect_close(fast.split.optimizer, sums.optimizer / n, scale, "optimizer");
  expect_close(fast.split.barrier, sums.barrier / n, scale, "barrier");
  // The parts of waiting only where all replicas have one idle time; their sum everywhere.
  expect_close(fast.split.bubble + fast.split.pp + fast.split.dp, (sums.bubble + sums.pp + sums.dp) / n,
               scale, "waiting");
  if (uniform) {
    expect_close(fast.split.bubble, sums.bubble / n, scale, "bubble");
    expect_close(fast.split.pp, sums.pp / n, scale, "pp");
    expect_close(fast.split.dp, sums.dp / n, scale, "dp");
  }
  expect_close(fast.bubble_fraction, idle_of(layout, programs, Communication::none).share, 1, "bubble share");
  expect_close(fast.split.total(), fast.seconds, scale, "sum of the split");
}

// Where tp and cp groups lie alike in nodes and pods, every replica has the same pace.
bool has_uniform_groups(const config::RunFile& run) {
  const int64_t group = run.parallel.tp * run.parallel.cp;
  const auto fit = [&](int64_t unit) { return unit % group == 0 || run.parallel.world_size() <= unit; };
  return fit(run.cluster.gpus_per_node) && fit(run.cluster.gpus_per_pod);
}

TEST(AgainstReference, DrawnLayoutsWithoutJitter) {
  Drawn drawn(1);
  for (int i = 0; i < 50 / fewer; ++i) {
    const config::RunFile run = drawn.run();
    SCOPED_TRACE(describe(run));
    sim::StepOptions options = sim::step_options(run.simulate);
    options.jitter = false;
    compare(run, options, has_uniform_groups(run));
    if (HasFailure()) return;
  }
}

TEST(AgainstReference, DrawnLayoutsWithJitterAndASlowRank) {
  Drawn drawn(2);
  for (int i = 0; i < 50 / fewer; ++i) {
    const config::RunFile run = drawn.run();
    SCOPED_TRACE(describe(run));
    sim::StepOptions options = sim::step_options(run.simulate);
    options.op_jitter = i % 2 == 0 ? 0.05 : 0.4;
    options.rank_jitter = 0.1;
    options.step = i;
    if (i % 3 == 0) options.slow = {{static_cast<int>(run.parallel.world_size()) - 1, 1.5}};
    compare(run, options, has_uniform_groups(run));
    if (HasFailure()) return;
  }
}

// Collectives, messages and kernels at the same time slow each other down.
TEST(AgainstReference, DrawnLayoutsOnACrowdedNetwork) {
  Drawn drawn(3);
  int crowded = 0;
  for (int i = 0; i < 60 / fewer; ++i) {
    config::RunFile run = drawn.run();
    drawn.crowd(run);
    SCOPED_TRACE(describe(run));
    sim::StepOptions options = sim::step_options(run.simulate);
    options.jitter = i % 3 != 0;
    compare(run, options, false);
    if (HasFailure()) return;
    // The comparison says little unless sharing is what decides.
    sim::StepOptions apart = options;
    apart.contention = false;
    const parallel::Layout layout(run);
    const auto programs = parallel::build_step_programs(layout);
    const double alone = sim::simulate_step(layout, programs, apart).seconds;
    crowded += sim::simulate_step(layout, programs, options).seconds > 1.001 * alone ? 1 : 0;
  }
  EXPECT_GT(crowded, 10 / fewer);
}

TEST(AgainstReference, DrawnLayoutsWithEverythingThatMakesRanksDiffer) {
  Drawn drawn(4);
  for (int i = 0; i < 40 / fewer; ++i) {
    config::RunFile run = drawn.run();
    if (i % 2 == 0) drawn.crowd(run);
    SCOPED_TRACE(describe(run));
    sim::StepOptions options = sim::step_options(run.simulate);
    drawn.disturb(options, run.parallel.world_size());
    compare(run, options, false);
    if (HasFailure()) return;
  }
}

TEST(AgainstReference, ReplicasThatFillMoreThanOneTile) {
  config::RunFile run = sample_run(2, 2, 75, 2, 3);
  run.cluster = small_cluster(4, 96);
  compare(run, sim::step_options(run.simulate), true);
}

// Messages stay in a node or leave it by the pair of ranks: nodes of 2 and 3 cut the pipeline anywhere.
TEST(AgainstReference, LostPacketsOfMessagesInsideAndBetweenNodes) {
  for (const int node : {2, 3, 4}) {
    for (const int chunks : {1, 2}) {
      config::RunFile run = sample_run(1, 4, 2, chunks, 4);
      run.cluster = small_cluster(node, 4 * node);
      sim::StepOptions options = sim::step_options(run.simulate);
      options.retransmit_probability = 0.3;
      options.retransmit_seconds = 2e-3;
      compare(run, options, false);
    }
  }
}

// A batch that takes longer to read than a step to run is waited for by all.
TEST(AgainstReference, ABatchThatIsReadLongerThanAStep) {
  for (const bool mask : {false, true}) {
    config::RunFile run = sample_run(2, 2, 2, 1, 4);
    run.data.document_mask = mask;
    run.cluster = small_cluster(8, 16);
    const parallel::Layout layout(run);
    const auto programs = parallel::build_step_programs(layout);
    const double step = sim::simulate_step(layout, programs, sim::step_options(run.simulate)).seconds;
    for (const double read : {0.9, 1.5, 100.0}) {
      run.cluster.storage_latency = read * step;
      run.cluster.storage_bandwidth = 1e12;
      compare(run, sim::step_options(run.simulate), false);
    }
  }
}

// Other training software: hosts that hold passes up, reductions after the last backward, parameters gathered
// at the start, hidden collectives, gradients that get less of the network; gpt models too.
TEST(AgainstReference, DrawnLayoutsOfOtherSoftware) {
  Drawn drawn(6);
  int held_up = 0;
  for (int i = 0; i < 40 / fewer; ++i) {
    config::RunFile run = drawn.run();
    if (i % 4 == 0) drawn.crowd(run);
    drawn.change_software(run);
    SCOPED_TRACE(describe(run));
    sim::StepOptions options = sim::step_options(run.simulate);
    options.jitter = i % 3 != 0;
    compare(run, options, false);
    if (HasFailure()) return;
    const auto seconds = [&](config::RunFile of) {
      const parallel::Layout layout(of);
      return sim::simulate_step(layout, parallel::build_step_programs(layout), options).seconds;
    };
    config::RunFile free = run;
    free.software.host_seconds_per_launch = free.software.host_seconds_per_micro_batch = 0;
    held_up += seconds(run) > 1.001 * seconds(free) ? 1 : 0;
  }
  EXPECT_GT(held_up, 10 / fewer);
}

// Groups of 3 do not divide a tile's usual width, groups of 40 exceed it.
TEST(AgainstReference, ContextParallelGroupsThatFillMoreThanOneTile) {
  for (const auto& [cp, dp] : {std::pair{3, 25}, std::pair{40, 2}}) {
    config::RunFile run = sample_run(2, 2, dp, 1, 3);
    run.parallel.cp = cp;
    run.model.kv_heads = 1;  // copied over tp
    run.train.sequence = 2 * 2 * cp * 4;
    run.cluster = small_cluster(480, 960);
    compare(run, sim::step_options(run.simulate), true);
  }
}

}  // namespace
}  // namespace lockstep::tests
