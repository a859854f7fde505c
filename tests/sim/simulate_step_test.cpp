#include "sim/simulate_step.hpp"

#include <gtest/gtest.h>

#include <cmath>

#include "base/error.hpp"
#include "cost/op_prices.hpp"
#include "sim/small_runs.hpp"

namespace lockstep::sim {
namespace {

using parallel::ActionKind;
using namespace test;

int64_t program_ops(const parallel::Layout& layout, const std::vector<parallel::Program>& programs) {
  int64_t ops = 0;
  for (const parallel::Program& program : programs) {
    for (const auto& action : program.actions) {
      ops += static_cast<int64_t>(parallel::action_ops(layout, program.stage, action).size()) *
             (layout.mesh().size() / layout.stages());
    }
  }
  return ops;
}

TEST(SimulateStep, OneRankTakesTheSumOfItsKernels) {
  const config::RunFile run = small_run(1, 1, 1, 1, 3);
  const parallel::Layout layout(run);
  const auto programs = parallel::build_step_programs(layout);
  const cost::OpPrices prices(run);
  double seconds = 0, optimizer = 0;
  for (const auto& action : programs[0].actions) {
    for (const model::Op& op : parallel::action_ops(layout, 0, action)) {
      const double one = prices.kernel_seconds(op);
      seconds += one;
      const bool in_optimizer =
          action.kind == ActionKind::gradient_norm || action.kind == ActionKind::optimizer_step;
      if (in_optimizer) optimizer += one;
    }
  }
  const StepResult r = simulate(run, no_jitter());
  EXPECT_NEAR(r.seconds, seconds, 1e-9 * seconds);
  EXPECT_NEAR(r.split.optimizer, optimizer, 1e-9 * seconds);
  EXPECT_NEAR(r.split.compute + r.split.data, seconds - optimizer, 1e-9 * seconds);
  EXPECT_EQ(r.split.tp + r.split.pp + r.split.dp + r.split.bubble, 0);
  EXPECT_EQ(r.bubble_fraction, 0);
}

TEST(SimulateStep, ComputeIsTheKernelsWhateverTheRanksWaitFor) {
  const config::RunFile run = small_run(2, 2, 2, 2, 4);
  const parallel::Layout layout(run);
  const auto programs = parallel::build_step_programs(layout);
  const cost::OpPrices prices(run);
  double compute = 0;
  for (const auto& program : programs) {
    for (const auto& action : program.actions) {
      if (action.kind != ActionKind::forward && action.kind != ActionKind::backward) continue;
      for (const model::Op& op : parallel::action_ops(layout, program.stage, action)) {
        if (cost::is_kernel(op.kind)) compute += prices.kernel_seconds(op) / layout.stages();
      }
    }
  }
  const StepResult r = simulate(run, no_jitter());
  EXPECT_NEAR(r.split.compute, compute, 1e-9 * compute);
  EXPECT_GT(r.split.tp, 0);
  EXPECT_GT(r.split.pp, 0);
  EXPECT_GT(r.split.dp, 0);
  EXPECT_GT(r.split.bubble, 0);
}

TEST(SimulateStep, BubbleOfGpipeAnd1F1BEqualsTheFormula) {
  for (const auto schedule : {config::ScheduleKind::gpipe, config::ScheduleKind::one_f_one_b}) {
    for (const int64_t m : {1, 2, 8, 16, 64}) {
      config::RunFile run = even_run(8, 1, m);
      run.parallel.schedule = schedule;
      const double p = 8;
      const double formula = (p - 1) / (static_cast<double>(m) + p - 1);
      // The embedding and the head of one token cost a little at two of the stages.
      EXPECT_NEAR(simulate(run, no_jitter()).bubble_fraction, formula, 0.002) << m;
    }
  }
}

TEST(SimulateStep, InterleavedBubbleShrinksByTheChunksOfAStage) {
  for (const int64_t v : {2, 4, 8}) {
    for (const int64_t m : {8, 16, 32}) {
      const double p = 8;
      const double formula = (p - 1) / (static_cast<double>(v * m) + p - 1);
      const double bubble = simulate(even_run(8, v, m), no_jitter()).bubble_fraction;
      EXPECT_NEAR(bubble, formula, 0.002) << v << " " << m;
      // Over compute: (p - 1) / (V m).
      EXPECT_NEAR(bubble / (1 - bubble), (p - 1) / static_cast<double>(v * m), 0.002) << v << " " << m;
    }
  }
}

TEST(SimulateStep, MoreGpusChangeTheResult) {
  // Twice the replicas with the same work each: the gradient reduction takes longer.
  const double once = simulate(small_run(2, 2, 4, 1, 4), no_jitter()).seconds;
  const double twice = simulate(small_run(2, 2, 8, 1, 4), no_jitter()).seconds;
  EXPECT_GT(twice, once * 1.0001);
  // The same batch on twice the replicas: half the micro-batches, much faster.
  const double half = simulate(small_run(2, 2, 8, 1, 2), no_jitter()).seconds;
  EXPECT_LT(half, once * 0.8);
}

TEST(SimulateStep, TensorParallelAcrossNodesShows) {
  config::RunFile run = small_run(4, 2, 2, 1, 4);
  const StepResult inside = simulate(run, no_jitter());
  run.cluster.gpus_per_node = 2;
  const StepResult across = simulate(run, no_jitter());
  EXPECT_GT(across.split.tp, 2 * inside.split.tp);
  EXPECT_GT(across.seconds, inside.seconds);
  EXPECT_NEAR(across.split.compute, inside.split.compute, 1e-12);
}

TEST(SimulateStep, OversubscribedUplinksShow) {
  // Groups of data parallel that go from pod to pod with every hop.
  config::RunFile run = small_run(4, 4, 2, 1, 2);
  run.cluster.gpus_per_node = 8;
  run.cluster.gpus_per_pod = 16;
  run.cluster.pod_oversubscription = 1;
  const StepResult full = simulate(run, no_jitter());
  run.cluster.pod_oversubscription = 8;
  EXPECT_GT(simulate(run, no_jitter()).split.dp, 2 * full.split.dp);
}

TEST(SimulateStep, PipelineMessagesCost) {
  config::RunFile run = small_run(1, 4, 1, 1, 4);
  run.cluster.gpus_per_node = 1;
  const StepResult slow = simulate(run, no_jitter());
  run.cluster.nic_bandwidth *= 10;
  const StepResult fast = simulate(run, no_jitter());
  EXPECT_LT(fast.split.pp, slow.split.pp);
  EXPECT_LT(fast.seconds, slow.seconds);
  EXPECT_EQ(fast.bubble_fraction, slow.bubble_fraction);  // by the schedule alone
}

TEST(SimulateStep, ASlowRankDragsAll) {
  const config::RunFile run = small_run(2, 2, 4, 1, 8);
  const StepResult even = simulate(run, no_jitter());
  StepOptions options = no_jitter();
  options.slow = {{13, 1.5}};
  const StepResult slow = simulate(run, options);
  EXPECT_EQ(slow.slowest_rank, 13);
  EXPECT_GT(slow.seconds, 1.2 * even.seconds);
  EXPECT_GT(slow.seconds_p50, 1.2 * even.seconds_p50);
  // The others wait for it.
  EXPECT_GT(slow.split.tp + slow.split.pp + slow.split.dp, even.split.tp + even.split.pp + even.split.dp);
}

// A batch is read during the step before: what is left after it is waited for, by all ranks, before they do
// anything.
TEST(SimulateStep, ABatchThatIsNotThereIsWaitedFor) {
  config::RunFile run = small_run(2, 2, 2, 1, 4);
  StepOptions options = no_jitter();
  options.traced_ranks = {0, 7};
  const StepResult before = simulate(run, options);
  run.cluster.storage_latency = 100;
  run.cluster.storage_bandwidth = 1e30;
  options.critical_path = true;
  const StepResult after = simulate(run, options);
  const double wait = 100 - before.seconds;
  EXPECT_NEAR(after.seconds, 100, 1e-9);
  EXPECT_NEAR(after.split.data, before.split.data + wait, 1e-9);
  EXPECT_NEAR(after.split.total(), 100, 1e-9);
  EXPECT_EQ(after.kernel_seconds, before.kernel_seconds);
  EXPECT_NEAR(after.critical_path.seconds[static_cast<size_t>(PathKind::data)], wait, 1e-3);
  EXPECT_EQ(after.phases[0].start, 0);
  EXPECT_NEAR(after.phases[1].start, before.phases[1].start + wait, 1e-9);
  for (size_t i = 0; i < 2; ++i) {
    const observe::SpanFile& trace = after.traces[i];
    ASSERT_EQ(trace.spans.size(), before.traces[i].spans.size() + 1);
    EXPECT_EQ(trace.names[trace.spans[0].name], "wait_for_batch");
    EXPECT_EQ(trace.spans[0].start_ns, 0);
    EXPECT_GE(trace.spans[1].start_ns, trace.spans[0].end_ns);
  }
  options.free = {PathKind::data};
  EXPECT_NEAR(simulate(run, options).seconds, before.seconds, 1e-3 * before.seconds);
}

TEST(SimulateStep, PartsSumToTheStep) {
  tests::Drawn drawn(7);
  for (int i = 0; i < 50; ++i) {
    const config::RunFile run = drawn.run();
    const StepResult r = simulate(run, step_options(run.simulate));
    EXPECT_NEAR(r.split.total(), r.seconds, 1e-9 * r.seconds);
    for (const double part : r.split.values()) EXPECT_GE(part, 0);
    EXPECT_LE(r.seconds_p50, r.seconds_p99);
    EXPECT_LE(r.seconds_p99, r.seconds);
    EXPECT_GE(r.bubble_fraction, 0);
    EXPECT_LT(r.bubble_fraction, 1);
    for (const double kernels : r.kernel_seconds) EXPECT_LE(kernels, r.seconds * (1 + 1e-12));
    EXPECT_EQ(r.phases.front().name, "data");
    EXPECT_EQ(r.phases.back().name, "barrier");
    EXPECT_EQ(r.phases.back().end, r.seconds);
    for (const Phase& phase : r.phases) EXPECT_LE(phase.start, phase.end);
  }
}

// Sums over many micro-batches round differently from the clock; that must not show as time below zero.
TEST(SimulateStep, OneStageIsNeverIdle) {
  for (int64_t m = 1; m <= 40; ++m) {
    const StepResult r = simulate(small_run(2, 1, 2, 1, m), no_jitter());
    EXPECT_GE(r.split.bubble, 0) << m;
    EXPECT_NEAR(r.split.bubble, 0, 1e-12 * r.seconds) << m;
    EXPECT_NEAR(r.bubble_fraction, 0, 1e-12) << m;
  }
}

TEST(SimulateStep, SameSeedSameBits) {
  const config::RunFile run = small_run(2, 2, 40, 2, 4);
  StepOptions options;
  const StepResult a = simulate(run, options);
  const StepResult b = simulate(run, options);
  EXPECT_EQ(a.finish_seconds, b.finish_seconds);
  EXPECT_EQ(a.split.values(), b.split.values());
  options.step = 1;
  const StepResult next = simulate(run, options);
  options.step = 0;
  options.seed = 2;
  const StepResult other = simulate(run, options);
  EXPECT_NE(a.seconds, next.seconds);
  EXPECT_NE(a.seconds, other.seconds);
}

TEST(SimulateStep, WithoutJitterReplicasAreEqual) {
  const StepResult r = simulate(small_run(2, 2, 40, 2, 4), no_jitter());
  for (size_t i = 0; i < r.finish_seconds.size(); ++i) {
    EXPECT_EQ(r.finish_seconds[i], r.finish_seconds[i % 4]);
  }
  StepOptions zero;
  zero.op_jitter = zero.rank_jitter = 0;
  EXPECT_EQ(simulate(small_run(2, 2, 40, 2, 4), zero).finish_seconds, r.finish_seconds);
}

TEST(SimulateStep, JitterMakesRanksWait) {
  const config::RunFile run = small_run(4, 2, 8, 1, 8);
  const StepResult even = simulate(run, no_jitter());
  StepOptions options;
  options.op_jitter = options.rank_jitter = 0.1;
  const StepResult uneven = simulate(run, options);
  EXPECT_GT(uneven.split.tp, 1.2 * even.split.tp);
  EXPECT_NEAR(uneven.split.compute / even.split.compute, 1, 0.1);
}

TEST(SimulateStep, OpsAreTheProgramsOps) {
  tests::Drawn drawn(3);
  for (int i = 0; i < 20; ++i) {
    const config::RunFile run = drawn.run();
    const parallel::Layout layout(run);
    const auto programs = parallel::build_step_programs(layout);
    EXPECT_EQ(simulate_step(layout, programs, no_jitter()).ops, program_ops(layout, programs));
  }
}

TEST(SimulateStep, ProgramsThatCannotRunAreNamed) {
  const parallel::Layout layout(small_run(1, 2, 1, 1, 2));
  auto programs = parallel::build_step_programs(layout);
  std::erase_if(programs[0].actions, [](const auto& a) { return a.kind == ActionKind::send_forward; });
  try {
    simulate_step(layout, programs, no_jitter());
    FAIL() << "a message that is never sent was not noticed";
  } catch (const RunError& error) {
    EXPECT_NE(std::string(error.what()).find("forward chunk 0 micro-batch 0"), std::string::npos)
        << error.what();
  }
  programs = parallel::build_step_programs(layout);
  programs[1].actions[2].chunk = 7;
  EXPECT_THROW(simulate_step(layout, programs, no_jitter()), RunError);
  programs.pop_back();
  EXPECT_THROW(simulate_step(layout, programs, no_jitter()), RunError);
  StepOptions options;
  options.traced_ranks = {2};
  EXPECT_THROW(simulate_step(layout, parallel::build_step_programs(layout), options), UsageError);
  for (const double jitter : {-0.1, 1.0, std::nan(""), HUGE_VAL}) {
    options = {};
    options.op_jitter = jitter;
    EXPECT_THROW(simulate_step(layout, parallel::build_step_programs(layout), options), UsageError) << jitter;
    options = {};
    options.rank_jitter = jitter;
    EXPECT_THROW(simulate_step(layout, parallel::build_step_programs(layout), options), UsageError) << jitter;
  }
  for (const double factor : {0.0, -1.0, std::nan(""), HUGE_VAL}) {
    options = {};
    options.slow = {{0, factor}};
    EXPECT_THROW(simulate_step(layout, parallel::build_step_programs(layout), options), UsageError) << factor;
  }
}

TEST(SimulateStep, EvaluationProgramsRunToo) {
  const config::RunFile run = small_run(2, 2, 2, 2, 4);
  const parallel::Layout layout(run);
  const StepResult r = simulate_step(layout, parallel::build_evaluation_programs(layout, 3), no_jitter());
  EXPECT_GT(r.seconds, 0);
  EXPECT_NEAR(r.split.total(), r.seconds, 1e-9 * r.seconds);
  EXPECT_EQ(r.phases.size(), 2u);  // forward and barrier
}

// The run that the project is named for, all ranks and ops.
TEST(SimulateStep, TheLargeRun) {
  const config::RunFile run = config::load_run_file(LOCKSTEP_SOURCE_DIR "/configs/llama3-405b-16k.toml", {});
  const parallel::Layout layout(run);
  const auto programs = parallel::build_step_programs(layout);
  const StepResult r = simulate_step(layout, programs, step_options(run.simulate));
  EXPECT_EQ(r.ranks, 16384);
  EXPECT_EQ(r.ops, program_ops(layout, programs));
  EXPECT_GT(r.ops / r.ranks, 3000);
  EXPECT_GT(r.seconds, 5);
  EXPECT_LT(r.seconds, 8);
  EXPECT_LT(r.wall_seconds, 10);
  EXPECT_NEAR(r.split.total(), r.seconds, 1e-9 * r.seconds);
  const cost::StepFigures f = cost::step_figures(run, r.seconds, r.bubble_fraction, r.split);
  EXPECT_LT(f.mfu_causal, 1);
}

}  // namespace
}  // namespace lockstep::sim
