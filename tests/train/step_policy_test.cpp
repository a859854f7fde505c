// What a step does beside computing: policies for numbers that are not finite, the batch ramp, SGD, waits.
#include <gtest/gtest.h>

#include <atomic>
#include <cmath>
#include <limits>
#include <map>
#include <mutex>
#include <thread>

#include "train/harness.hpp"

namespace lockstep::tests {
namespace {

using config::Dtype;

using BeforeStep = std::function<void(train::Trainer&, int64_t, int)>;

// What passes read, where this rank holds it: whole weights, or with zero = 3 its shard. The first element of
// the parameter that lies there; undefined when none does.
at::Tensor element_of(train::Trainer& trainer, const std::string& parameter) {
  for (const auto& chunk : trainer.executor().chunks()) {
    for (const train::FlatEntry& entry : chunk->model().flat().entries()) {
      if (entry.parameter.name != parameter) continue;
      if (chunk->model().weights().defined()) return chunk->model().weights().narrow(0, entry.offset, 1);
      for (const train::OwnedRange& range : chunk->state().ranges()) {
        const int64_t first = std::max(range.flat, entry.offset);
        if (first >= std::min(range.flat + range.size, entry.offset + entry.count)) continue;
        return chunk->weight_shards().narrow(0, first - range.flat + range.own, 1);
      }
    }
  }
  return {};
}

// Puts an infinity into one element of a weight matrix on one rank, before a step.
BeforeStep plant(const std::string& parameter, int64_t at_step, int at_rank) {
  return [=](train::Trainer& trainer, int64_t step, int rank) {
    if (step != at_step || rank != at_rank) return;
    const at::Tensor element = element_of(trainer, parameter);
    ASSERT_TRUE(element.defined());
    element.fill_(std::numeric_limits<double>::infinity());
  };
}

// Every worker stops, and says the same.
void expect_all_say(const JobResult& job, int workers, const std::string& text) {
  EXPECT_EQ(job.failures.size(), static_cast<size_t>(workers));
  for (const auto& [rank, failure] : job.failures) {
    EXPECT_NE(failure.find(text), std::string::npos) << "rank " << rank << ": " << failure;
  }
}

TEST(NonFinite, StopNamesTheFirstLayerOpAndRank) {
  const config::RunFile run = small_run({.tp = 2, .pp = 2, .dp = 2}, Dtype::bf16, 4);
  const JobResult job = run_job(
      run, {.steps = 4, .before_step = plant("model.layers.2.mlp.down_proj.weight", 3, 6), .may_fail = true});
  EXPECT_EQ(job.losses.size(), 2u);
  expect_all_say(job, 8, "step 3: ");
  expect_all_say(job, 8, "layer 2, down_gemm of micro-batch 0 on rank 6 (forward)");
}

// The shard of one rank is gathered by all that share the parameters: the one that holds it is named.
TEST(NonFinite, AShardedWeightIsNamedWhereItIsHeld) {
  const config::RunFile run =
      small_run({.cp = 2, .pp = 2, .dp = 2, .schedule = config::ScheduleKind::zero_bubble_h1, .zero = 3},
                Dtype::fp32, 3);
  for (int rank = 2; rank < 8; ++rank) {
    if (rank / 2 % 2 == 0) continue;  // the second stage: layers 2 and 3
    std::atomic<bool> planted = false;
    const BeforeStep one = [&](train::Trainer& trainer, int64_t step, int at) {
      if (step != 2 || at != rank) return;
      const at::Tensor element = element_of(trainer, "model.layers.3.mlp.gate_proj.weight");
      if (!element.defined()) return;
      element.fill_(std::numeric_limits<double>::infinity());
      planted = true;
    };
    const JobResult job = run_job(run, {.steps = 2, .before_step = one, .may_fail = true});
    if (!planted) continue;
    expect_all_say(job, 8, "layer 3, parameter_shard on rank " + std::to_string(rank) + " (unshard)");
    return;
  }
  FAIL() << "some rank holds a part of the matrix";
}

// The output matrix so large, and the norm before it so small, that logits stay finite; the gradient of the
// norm's output, a difference of two rows, does not.
TEST(NonFinite, ABackwardThatOverflowsIsNamedAsOne) {
  const config::RunFile run = small_run({.pp = 2, .dp = 2}, Dtype::fp32, 2);
  const BeforeStep grow = [](train::Trainer& trainer, int64_t step, int) {
    if (step != 2) return;
    for (const auto& chunk : trainer.executor().chunks()) {
      for (const train::FlatEntry& entry : chunk->model().flat().entries()) {
        const at::Tensor weights = chunk->model().weights().narrow(0, entry.offset, entry.count);
        if (entry.parameter.name == "model.norm.weight") weights.mul_(1e-30);
        if (entry.parameter.name != "lm_head.weight") continue;
        weights.copy_(weights.sign() * 3e38);
      }
    }
  };
  const JobResult job = run_job(run, {.steps = 2, .before_step = grow, .may_fail = true});
  EXPECT_EQ(job.losses.size(), 1u);
  // Rank 1 is the second stage of the first replica, rank 3 of the second.
  expect_all_say(job, 4, "step 2: ");
  expect_all_say(job, 4, "head_gemm_dgrad of micro-batch 0 on rank 1 (backward)");
}

// A step that is skipped leaves weights and optimizer as they were.
TEST(NonFinite, SkipLeavesTheWeightsAndGoesOn) {
  for (const int64_t zero : {0, 1, 2, 3}) {
    config::RunFile run = small_run({.tp = 2, .pp = 2, .dp = 2, .zero = zero}, Dtype::fp32, 5);
    run.train.nonfinite = config::NonFinite::skip;
    constexpr int spoiled = 5;  // tp 1, pp 0, dp 1
    train::WeightsHash before{}, after{};
    std::map<int, std::pair<double, double>> moments;  // of each rank, before and after; whole sums
    double kept = 0;
    std::mutex mutex;
    const BeforeStep spoil_once = [&](train::Trainer& trainer, int64_t step, int rank) {
      if (step != 3 && step != 4) return;
      const train::WeightsHash hash = trainer.weights_hash();
      double sum = 0;
      for (const at::Tensor& moment : trainer.executor().chunks()[0]->state().moments())
        sum += moment.to(at::kDouble).abs().sum().item<double>();
      const std::lock_guard lock(mutex);
      (step == 3 ? before : after) = hash;
      (step == 3 ? moments[rank].first : moments[rank].second) = sum;
      if (rank != spoiled) return;
      // Only what passes read: the master weights stay.
      const at::Tensor element = element_of(trainer, "model.layers.1.mlp.up_proj.weight");
      ASSERT_TRUE(element.defined());
      if (step == 3) kept = element.item<double>();
      element.fill_(step == 3 ? std::numeric_limits<double>::quiet_NaN() : kept);
    };
    const JobResult job = run_job(run, {.steps = 5, .before_step = spoil_once});
    ASSERT_EQ(job.reports.size(), 5u);
    EXPECT_EQ(before, after) << zero;
    for (const auto& [rank, sums] : moments) EXPECT_EQ(sums.first, sums.second) << zero << " rank " << rank;
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
  expect_all_say(job, 2, "10 steps in a row");
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
  EXPECT_EQ(tp.exposed.cp + tp.exposed.pp + tp.exposed.dp, 0);
  EXPECT_GT(waits({.cp = 2}).exposed.cp, 0);
  EXPECT_GT(waits({.pp = 2}).exposed.pp, 0);
  const train::StepReport dp = waits({.dp = 2, .zero = 2});
  EXPECT_GT(dp.exposed.dp, 0);
  EXPECT_GT(dp.under_way.dp, 0);
  EXPECT_EQ(dp.exposed.tp + dp.exposed.cp + dp.exposed.pp, 0);
}

// Stage 1 sleeps before its step; stage 0 computes all its forwards meanwhile, though nobody receives.
TEST(Overlap, SendsDoNotWaitForTheirReceivers) {
  const LayoutChoice choice{.pp = 2, .schedule = config::ScheduleKind::gpipe};
  const BeforeStep late = [](train::Trainer&, int64_t step, int rank) {
    if (step == 2 && rank == 1) std::this_thread::sleep_for(std::chrono::milliseconds(1000));
  };
  const JobResult job =
      run_job(small_run(choice, Dtype::fp32, 2), {.steps = 2, .record = true, .before_step = late});
  int64_t forwards_end = 0, receiver_begins = std::numeric_limits<int64_t>::max();
  for (const RankOps& rank : job.ranks) {
    for (const nn::OpRecord& op : rank.ops) {
      if (rank.rank == 0 && op.name == "ffn_residual") forwards_end = std::max(forwards_end, op.end_ns);
      if (rank.rank == 1) receiver_begins = std::min(receiver_begins, op.start_ns);
    }
  }
  EXPECT_LT(forwards_end, receiver_begins);
}

// Whether some op of the compute stream ran between the start and the end of a collective of that name.
bool ran_beside_compute(const JobResult& job, std::string_view name) {
  for (const RankOps& rank : job.ranks) {
    for (const nn::OpRecord& collective : rank.ops) {
      if (collective.name != name) continue;
      for (const nn::OpRecord& op : rank.ops) {
        if (op.stream == observe::Stream::compute && op.start_ns > collective.start_ns &&
            op.end_ns < collective.end_ns)
          return true;
      }
    }
  }
  return false;
}

// Four chunks in turn give gathers and scatters something to hide behind. How much they hide depends on the
// machine; that some op ran while one was under way, in five tries, does not.
TEST(Overlap, GathersAndScattersRunBesideCompute) {
  LayoutChoice choice{.dp = 4, .virtual_stages = 4, .schedule = config::ScheduleKind::interleaved, .zero = 3};
  choice.gradient_scatter = config::GradientScatter::micro_batch;
  bool gathers = false, scatters = false;
  for (int i = 0; i < 5 && !(gathers && scatters); ++i) {
    const JobResult job = run_job(small_run(choice, Dtype::fp32, 2), {.steps = 2, .record = true});
    gathers = gathers || ran_beside_compute(job, "parameter_all_gather");
    scatters = scatters || ran_beside_compute(job, "gradient_reduce_scatter");
  }
  EXPECT_TRUE(gathers);
  EXPECT_TRUE(scatters);
}

}  // namespace
}  // namespace lockstep::tests
