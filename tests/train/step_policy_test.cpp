// What a step does beside computing: policies for numbers that are not finite, the batch ramp, SGD, waits.
#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "train/harness.hpp"

namespace lockstep::tests {
namespace {

using config::Dtype;

// Puts an infinity into one element of a weight matrix on one rank, before a step.
std::function<void(train::Trainer&, int64_t, int)> plant(const std::string& parameter, int64_t at_step,
                                                         int at_rank) {
  return [=](train::Trainer& trainer, int64_t step, int rank) {
    if (step != at_step || rank != at_rank) return;
    for (const auto& chunk : trainer.executor().chunks()) {
      for (const train::FlatEntry& entry : chunk->model().flat().entries()) {
        if (entry.parameter.name != parameter) continue;
        chunk->model().weights()[entry.offset + 5] = std::numeric_limits<double>::infinity();
      }
    }
  };
}

at::Tensor chunk_weights(train::Trainer& trainer) {
  return trainer.executor().chunks()[0]->model().weights();
}

// Three of four workers see only what the one hands them: all name it.
TEST(NonFinite, StopNamesTheFirstLayerOpAndRank) {
  const config::RunFile run = small_run({.tp = 2, .pp = 2, .dp = 2}, Dtype::bf16, 4);
  const JobResult job = run_job(
      run, {.steps = 4, .before_step = plant("model.layers.2.mlp.down_proj.weight", 3, 6), .may_fail = true});
  EXPECT_EQ(job.losses.size(), 2u);
  EXPECT_NE(job.failure.find("step 3"), std::string::npos) << job.failure;
  EXPECT_NE(job.failure.find("layer 2, down_gemm of micro-batch 0 on rank 6 (forward)"), std::string::npos)
      << job.failure;
}

// A step that is skipped leaves weights and optimizer as they were: the run goes on as if it had not been,
// but for the batch it took and the learning rate, which follow the step.
TEST(NonFinite, SkipLeavesTheWeightsAndGoesOn) {
  for (const int64_t zero : {0, 1, 2, 3}) {
    config::RunFile run = small_run({.tp = 2, .pp = 2, .dp = 2, .zero = zero}, Dtype::fp32, 5);
    run.train.nonfinite = config::NonFinite::skip;
    train::WeightsHash before{}, after{};
    double kept = 0;
    const auto spoil_once = [&](train::Trainer& trainer, int64_t step, int rank) {
      if (step != 3 && step != 4) return;
      const train::WeightsHash hash = trainer.weights_hash();
      if (rank == 0) (step == 3 ? before : after) = hash;
      if (rank != 5 || zero == 3) return;
      // Rank 5: tp 1, pp 0, dp 1. Only the weights that passes read; the master weights stay.
      at::Tensor first = chunk_weights(trainer).narrow(0, 70, 1);
      if (step == 3) {
        kept = first.item<double>();
        first.fill_(std::numeric_limits<double>::quiet_NaN());
      } else {
        first.fill_(kept);
      }
    };
    const auto spoil_shard = [&](train::Trainer& trainer, int64_t step, int rank) {
      spoil_once(trainer, step, rank);
      if (zero == 3 && rank == 5 && (step == 3 || step == 4)) {
        at::Tensor first = trainer.executor().chunks()[0]->weight_shards().narrow(0, 70, 1);
        if (step == 3) kept = first.item<double>();
        first.fill_(step == 3 ? std::numeric_limits<double>::quiet_NaN() : kept);
      }
    };
    const JobResult job = run_job(run, {.steps = 5, .before_step = spoil_shard});
    ASSERT_EQ(job.reports.size(), 5u);
    EXPECT_EQ(before, after) << zero;
    for (size_t i = 0; i < 5; ++i) {
      EXPECT_EQ(job.reports[i].skipped, i == 2) << zero << " step " << i + 1;
      EXPECT_EQ(job.reports[i].trouble.empty(), i != 2);
      EXPECT_EQ(std::isfinite(job.losses[i]) && std::isfinite(job.grad_norms[i]), i != 2);
    }
  }
}

TEST(NonFinite, TenSkipsInARowStopTheRun) {
  config::RunFile run = small_run({.dp = 2}, Dtype::bf16, 20);
  run.train.nonfinite = config::NonFinite::skip;
  const JobResult job = run_job(
      run, {.steps = 20, .before_step = plant("model.layers.0.mlp.up_proj.weight", 2, 1), .may_fail = true});
  EXPECT_EQ(job.losses.size(), 10u) << "one good step, nine that were skipped, the tenth stops";
  EXPECT_NE(job.failure.find("10 steps in a row"), std::string::npos) << job.failure;
}

TEST(BatchRamp, StepsTakeTheSequencesOfTheirStage) {
  for (const LayoutChoice& choice :
       {LayoutChoice{}, LayoutChoice{.pp = 2, .dp = 2}, LayoutChoice{.cp = 2, .dp = 2, .zero = 3}}) {
    config::RunFile run = small_run(choice, Dtype::fp64, 6);
    run.train.batch_ramp = {"2:2", "4:4"};
    const JobResult job = run_job(run, {.steps = 6});
    const JobResult one = [&] {
      config::RunFile alone_run = small_run({}, Dtype::fp64, 6);
      alone_run.train.batch_ramp = run.train.batch_ramp;
      return run_job(alone_run, {.steps = 6});
    }();
    for (size_t i = 0; i < 6; ++i) {
      EXPECT_EQ(job.reports[i].sequences, i < 2 ? 2 : i < 4 ? 4 : 8);
      EXPECT_EQ(job.reports[i].tokens, job.reports[i].sequences * run.train.sequence);
      EXPECT_NEAR(job.losses[i] / one.losses[i], 1, 1e-9) << describe(choice) << " step " << i + 1;
    }
  }
}

TEST(Sgd, EveryCutGivesOneWorkersLosses) {
  for (const double momentum : {0.0, 0.9}) {
    const auto run_of = [&](const LayoutChoice& choice) {
      config::RunFile run = small_run(choice, Dtype::fp64, 8);
      run.train.optimizer = config::Optimizer::sgd;
      run.train.momentum = momentum;
      run.train.lr = 0.1;
      return run_job(run, {.steps = 8});
    };
    const JobResult one = run_of({});
    EXPECT_LT(one.losses.back(), one.losses.front() - 0.05);
    for (const LayoutChoice& choice :
         {LayoutChoice{.tp = 2, .pp = 2, .dp = 2}, LayoutChoice{.cp = 2, .dp = 2, .zero = 3}}) {
      const JobResult cut = run_of(choice);
      for (size_t i = 0; i < 8; ++i) EXPECT_NEAR(cut.losses[i] / one.losses[i], 1, 1e-9);
    }
  }
}

// With a document mask the loss is over what is learnt, and borders are not.
TEST(DocumentMask, BordersAreNotLearnt) {
  const config::RunFile run = small_run({.cp = 2, .dp = 2, .document_mask = true}, Dtype::fp64, 3);
  const int64_t whole = run.train.global_batch * run.train.sequence;
  for (const train::StepReport& report : run_job(run, {.steps = 3}).reports) {
    EXPECT_LT(report.tokens, whole) << "every window of these short documents holds a border";
    EXPECT_GT(report.tokens, whole / 2);
  }
}

// What a worker waits for is booked on the axis that it waits on.
TEST(Waits, AreBookedByAxis) {
  const auto waits = [](const LayoutChoice& choice) {
    return run_job(small_run(choice, Dtype::fp32, 3), {.steps = 3}).reports.back();
  };
  const train::StepReport alone_report = waits({});
  EXPECT_EQ(alone_report.exposed.total(), 0);
  const train::StepReport tp = waits({.tp = 2});
  EXPECT_GT(tp.exposed.tp, 0);
  EXPECT_EQ(tp.exposed.tp, tp.under_way.tp) << "collectives of tp cannot be hidden";
  EXPECT_EQ(tp.exposed.cp + tp.exposed.pp + tp.exposed.dp, 0);
  EXPECT_GT(waits({.cp = 2}).exposed.cp, 0);
  EXPECT_GT(waits({.pp = 2}).exposed.pp, 0);
  const train::StepReport dp = waits({.dp = 2, .zero = 2});
  EXPECT_GT(dp.exposed.dp, 0);
  EXPECT_GT(dp.under_way.dp, 0);
  EXPECT_EQ(dp.exposed.tp + dp.exposed.cp + dp.exposed.pp, 0);
}

}  // namespace
}  // namespace lockstep::tests
