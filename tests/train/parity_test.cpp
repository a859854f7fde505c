// The numbers of a run do not depend on how it is cut: every layout against one worker.
#include <gtest/gtest.h>

#include <cmath>

#include "train/harness.hpp"

namespace lockstep::tests {
namespace {

using config::Dtype;
using config::ScheduleKind;

std::vector<LayoutChoice> layouts() {
  const auto interleaved = ScheduleKind::interleaved;
  return {
      {.dp = 2},
      {.dp = 4},
      {.tp = 2},
      {.tp = 4},
      {.pp = 2},
      {.pp = 4},
      {.pp = 2, .virtual_stages = 2, .schedule = interleaved},
      {.tp = 2, .pp = 2},
      {.tp = 2, .dp = 2},
      {.pp = 2, .dp = 2},
      {.tp = 2, .pp = 2, .dp = 2},
      // Beyond the list: other schedules and cuts that have their own code.
      {.tp = 2, .sequence_parallel = false},
      {.tp = 4, .pp = 2, .sequence_parallel = false},
      {.pp = 4, .schedule = ScheduleKind::gpipe},
      {.tp = 2, .pp = 2, .dp = 2, .virtual_stages = 2, .schedule = interleaved, .micro_batch = 2},
      {.dp = 8},
      {.pp = 4, .dp = 2, .micro_batch = 4},  // one micro-batch, fewer than stages
      // Chunks without a layer, embedding only and output only; more stages than layers.
      {.pp = 6, .first_stage_less_layers = 1, .last_stage_less_layers = 1},
      {.tp = 2, .pp = 3, .dp = 2, .first_stage_less_layers = 2},
      // 8 micro-batches in groups of 3, then 2 of them.
      {.pp = 3,
       .virtual_stages = 2,
       .schedule = interleaved,
       .first_stage_less_layers = 1,
       .last_stage_less_layers = 1},
      {.tp = 2,
       .pp = 3,
       .dp = 2,
       .virtual_stages = 2,
       .schedule = interleaved,
       .micro_batch = 2,
       .first_stage_less_layers = 1,
       .last_stage_less_layers = 1},
  };
}

double worst_relative(const std::vector<double>& a, const std::vector<double>& b, size_t first_steps) {
  double worst = 0;
  for (size_t i = 0; i < first_steps; ++i) {
    const double error = std::abs(a.at(i) / b.at(i) - 1);
    EXPECT_TRUE(std::isfinite(error));
    worst = std::max(worst, error);
  }
  return worst;
}

TEST(Parity, LossesInFp64) {
  const JobResult one = run_job(small_run({}, Dtype::fp64, 20), {.steps = 20, .evaluate = true});
  ASSERT_EQ(one.losses.size(), 20u);
  EXPECT_NEAR(one.losses.front(), std::log(256.0), 0.1);
  EXPECT_LT(one.losses.back(), one.losses.front() - 0.5) << "the job must learn, or parity says little";
  for (const LayoutChoice& choice : layouts()) {
    SCOPED_TRACE(describe(choice));
    const JobResult cut = run_job(small_run(choice, Dtype::fp64, 20), {.steps = 20, .evaluate = true});
    EXPECT_LT(worst_relative(cut.losses, one.losses, 20), 1e-9);
    EXPECT_LT(worst_relative(cut.grad_norms, one.grad_norms, 20), 1e-8);
    EXPECT_NEAR(cut.eval_loss / one.eval_loss, 1, 1e-9);
  }
}

TEST(Parity, GradientsAndLossesInFp32) {
  const JobResult first = run_job(small_run({}, Dtype::fp32, 1), {.steps = 1, .gradients = true});
  const JobResult one = run_job(small_run({}, Dtype::fp32, 20), {.steps = 20});
  for (const LayoutChoice& choice : layouts()) {
    SCOPED_TRACE(describe(choice));
    const JobResult cut = run_job(small_run(choice, Dtype::fp32, 1), {.steps = 1, .gradients = true});
    ASSERT_EQ(cut.gradients.size(), first.gradients.size());
    for (const auto& [name, gradient] : first.gradients) {
      const double norm = gradient.norm().item<double>();
      ASSERT_GT(norm, 0) << name;
      EXPECT_LT((cut.gradients.at(name) - gradient).norm().item<double>(), 1e-5 * norm) << name;
    }
    const JobResult twenty = run_job(small_run(choice, Dtype::fp32, 20), {.steps = 20});
    EXPECT_LT(worst_relative(twenty.losses, one.losses, 5), 1e-5);
    EXPECT_LT(worst_relative(twenty.losses, one.losses, 20), 1e-4);
  }
}

TEST(Parity, Bf16StaysCloseToFp32) {
  const JobResult reference = run_job(small_run({}, Dtype::fp32, 20), {.steps = 20});
  for (const LayoutChoice& choice : {LayoutChoice{}, LayoutChoice{.tp = 2, .pp = 2, .dp = 2}}) {
    SCOPED_TRACE(describe(choice));
    const JobResult low = run_job(small_run(choice, Dtype::bf16, 20), {.steps = 20});
    EXPECT_LT(worst_relative(low.losses, reference.losses, 20), 2e-2);
  }
}

TEST(Parity, TwoRunsOfOneLayoutAreBitwiseEqual) {
  for (const Dtype dtype : {Dtype::bf16, Dtype::fp32}) {
    const config::RunFile run = small_run({.tp = 2, .pp = 2, .dp = 2}, dtype, 5);
    const JobResult a = run_job(run, {.steps = 5});
    const JobResult b = run_job(run, {.steps = 5});
    EXPECT_EQ(a.hash, b.hash);
    EXPECT_EQ(a.losses, b.losses);
    config::RunFile other = run;
    other.train.seed = 2;
    EXPECT_NE(run_job(other, {.steps = 5}).hash, a.hash);
  }
}

// The hash does not see the layout: weights that no step has touched are the same in all of them.
TEST(Parity, InitialWeightsHaveOneHash) {
  const train::WeightsHash hash = run_job(small_run({}, Dtype::fp32, 1), {.steps = 0}).hash;
  for (const LayoutChoice& choice : layouts()) {
    EXPECT_EQ(run_job(small_run(choice, Dtype::fp32, 1), {.steps = 0}).hash, hash) << describe(choice);
  }
}

}  // namespace
}  // namespace lockstep::tests
