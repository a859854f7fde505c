// How calibration runs become figures. The runs here are planted; tests/cli_train takes real ones.
#include "cli/kernel_timing.hpp"

#include <gtest/gtest.h>

#include <algorithm>

namespace lockstep::cli {
namespace {

TimedRun timed(const TimedShape& shape, double kernel_seconds) {
  TimedRun run;
  run.shape = shape;
  run.kernel_seconds = kernel_seconds;
  return run;
}

TEST(KernelTiming, TheSlowdownOfBusyCoresComparesRunsOfOneShape) {
  // The lone runs before and after; other shapes and other numbers of workers say nothing.
  std::vector<TimedRun> runs = {timed({}, 0.9),      timed({.dp = 2}, 1.2), timed({}, 1.1),
                                timed({.tp = 2}, 7), timed({.dp = 4}, 9),   timed({.hidden = 64}, 3)};
  EXPECT_NEAR(busy_slowdown(runs, 2), 0.2, 1e-12);
  EXPECT_NEAR(busy_slowdown(runs, 4), 8, 1e-12);
  EXPECT_EQ(busy_slowdown(runs, 3), 0);  // not measured
  EXPECT_EQ(busy_slowdown(runs, 1), 0);
  runs[1].kernel_seconds = 0.8;  // noise: workers beside make nothing faster
  EXPECT_EQ(busy_slowdown(runs, 2), 0);
}

TEST(KernelTiming, EveryKernelGoesToItsCurve) {
  KernelSamples samples;
  model::Op op;
  op.kind = model::OpKind::memory;
  samples.of(op).push_back({1, 1, 1});
  op.work = model::Work::rows;
  samples.of(op).push_back({2, 1, 1});
  op.work = model::Work::exponentials;
  samples.of(op).push_back({3, 1, 1});
  op.kind = model::OpKind::gemm;
  op.work = model::Work::weight_gradient;
  samples.of(op).push_back({4, 1, 1});
  op.work = model::Work::usual;
  samples.of(op).push_back({5, 1, 1});
  op.kind = model::OpKind::attention;
  samples.of(op).push_back({6, 1, 1});
  KernelSamples all;
  all.add(samples, 1);
  all.add(samples, 2);  // measured beside others, which made kernels twice as long
  EXPECT_EQ(all.size(), 12u);
  double size = 1;
  for (const auto* curve :
       {&all.memory, &all.rows, &all.exponentials, &all.weight_gradient, &all.gemm, &all.attention}) {
    ASSERT_EQ(curve->size(), 2u);
    EXPECT_EQ(curve->front().size, size++);
    EXPECT_EQ(curve->back().seconds, 0.5);
  }
}

// A lone worker, one on every core, and more than there are cores: where the machine and the wish have them.
TEST(KernelTiming, ThePlanHasTheRunsThatAMachineNeeds) {
  const auto has = [](const TimingPlan& plan, const TimedShape& shape) {
    return std::find(plan.shapes.begin(), plan.shapes.end(), shape) != plan.shapes.end();
  };
  const TimingPlan two = timing_plan(config::Dtype::bf16, 2, 8, true);
  for (const TimedShape& shape : {TimedShape{}, TimedShape{.dp = 2}, TimedShape{.tp = 2, .dp = 4}}) {
    EXPECT_TRUE(has(two, shape)) << shape.tp << " x " << shape.dp;
  }
  const TimingPlan many = timing_plan(config::Dtype::bf16, 16, 8, true);
  EXPECT_TRUE(has(many, {.dp = 16}));
  for (const TimedShape& shape : many.shapes) EXPECT_LE(shape.tp * shape.dp, 16);
  EXPECT_TRUE(has(timing_plan(config::Dtype::bf16, 2, 3, true), {.dp = 3}));
  const TimingPlan one = timing_plan(config::Dtype::bf16, 1, 2, true);
  EXPECT_TRUE(has(one, {.tp = 2}));
  EXPECT_GT(timing_plan(config::Dtype::bf16, 2, 8, false).shapes.size(), two.shapes.size());
}

}  // namespace
}  // namespace lockstep::cli
