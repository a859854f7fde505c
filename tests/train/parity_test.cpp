// The numbers of a run do not depend on how it is cut: every layout against one worker.
#include <gtest/gtest.h>

#include <cmath>
#include <map>
#include <numeric>
#include <optional>

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
      // The whole parallelism, each choice at least once and with others.
      {.cp = 2},
      {.cp = 4, .document_mask = true},
      {.tp = 2, .cp = 2, .pp = 2, .document_mask = true},
      {.tp = 2, .cp = 2, .sequence_parallel = false, .zero = 3},
      {.dp = 4, .zero = 0},
      {.pp = 2, .dp = 2, .zero = 2},
      {.cp = 2, .dp = 2, .zero = 3},
      {.dp = 2, .virtual_stages = 4, .schedule = interleaved, .zero = 3},
      {.pp = 2,
       .dp = 2,
       .virtual_stages = 2,
       .schedule = interleaved,
       .zero = 3,
       .reshard_after_forward = false,
       .gradient_scatter = config::GradientScatter::micro_batch},
      {.dp = 4, .zero = 2, .gradient_scatter = config::GradientScatter::micro_batch},
      {.pp = 4, .schedule = ScheduleKind::zero_bubble_h1},
      {.tp = 2,
       .pp = 2,
       .dp = 2,
       .schedule = ScheduleKind::zero_bubble_h1,
       .gathered_input = config::GatheredInput::keep},
      {.tp = 2, .pp = 2, .schedule = ScheduleKind::zero_bubble_h1, .recompute = {"norm", "attention"}},
      {.tp = 2, .recompute = {"norm", "swiglu", "attention"}},
      {.tp = 2, .cp = 2, .recompute = {"full"}},
      {.pp = 2, .recompute = {"full"}, .recompute_every = 3},
      {.tp = 4, .dp = 2, .kv_heads = 2, .vocab = 259},
      {.tp = 8, .kv_heads = 1, .vocab = 257},
      {.pp = 2, .dp = 2, .tie_embeddings = true},
      {.tp = 2, .pp = 4, .zero = 3, .vocab = 259, .tie_embeddings = true},
      {.tie_embeddings = true},
      {.pp = 3, .layer_split = config::LayerSplit::cost, .layers = 7},
      {.pp = 2, .virtual_stages = 3, .schedule = interleaved, .layer_split = config::LayerSplit::cost},
      {.dp = 2, .replicas = 4},
      {.pp = 2, .dp = 3, .replicas = 8, .zero = 2},
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

// One worker's run of every job that some layout computes, each computed once.
class References {
 public:
  References(Dtype dtype, int64_t steps, JobOptions options)
      : dtype_(dtype), steps_(steps), options_(options) {}
  const JobResult& of(const LayoutChoice& choice) {
    const std::string job = describe(alone(choice));
    const auto found = results_.find(job);
    if (found != results_.end()) return found->second;
    return results_[job] = run_job(small_run(alone(choice), dtype_, steps_), options_);
  }

 private:
  Dtype dtype_;
  int64_t steps_;
  JobOptions options_;
  std::map<std::string, JobResult> results_;
};

TEST(Parity, LossesInFp64) {
  constexpr int64_t steps = 12;
  const JobOptions options{.steps = steps, .evaluate = true};
  References references(Dtype::fp64, steps, options);
  const JobResult& plain = references.of({});
  EXPECT_NEAR(plain.losses.front(), std::log(256.0), 0.1);
  EXPECT_LT(plain.losses.back(), plain.losses.front() - 0.3) << "the job must learn, or parity says little";
  for (const LayoutChoice& choice : layouts()) {
    SCOPED_TRACE(describe(choice));
    const JobResult& one = references.of(choice);
    const JobResult cut = run_job(small_run(choice, Dtype::fp64, steps), options);
    EXPECT_LT(worst_relative(cut.losses, one.losses, steps), 1e-9);
    EXPECT_LT(worst_relative(cut.grad_norms, one.grad_norms, steps), 1e-8);
    EXPECT_NEAR(cut.eval_loss / one.eval_loss, 1, 1e-9);
  }
}

TEST(Parity, GradientsAndLossesInFp32) {
  References first(Dtype::fp32, 1, {.steps = 1, .gradients = true});
  References twenty(Dtype::fp32, 20, {.steps = 20});
  for (const LayoutChoice& choice : layouts()) {
    SCOPED_TRACE(describe(choice));
    const JobResult cut = run_job(small_run(choice, Dtype::fp32, 1), {.steps = 1, .gradients = true});
    const auto& wanted = first.of(choice).gradients;
    ASSERT_EQ(cut.gradients.size(), wanted.size());
    for (const auto& [name, gradient] : wanted) {
      const double norm = gradient.norm().item<double>();
      ASSERT_GT(norm, 0) << name;
      EXPECT_LT((cut.gradients.at(name) - gradient).norm().item<double>(), 1e-5 * norm) << name;
    }
    const JobResult run = run_job(small_run(choice, Dtype::fp32, 20), {.steps = 20});
    EXPECT_LT(worst_relative(run.losses, twenty.of(choice).losses, 5), 1e-5);
    EXPECT_LT(worst_relative(run.losses, twenty.of(choice).losses, 20), 1e-4);
  }
}

// The same logical replicas on any number of physical ones: bitwise the same weights, losses and norms.
TEST(Parity, PhysicalReplicasDoNotChangeABit) {
  const LayoutChoice cuts[] = {
      {},
      {.zero = 0},
      {.zero = 2},
      {.zero = 3, .gradient_scatter = config::GradientScatter::micro_batch},
      {.tp = 2, .pp = 2},
      {.cp = 2, .zero = 3, .document_mask = true},
      {.pp = 2, .schedule = ScheduleKind::zero_bubble_h1, .tie_embeddings = true},
      {.pp = 2,
       .virtual_stages = 2,
       .schedule = ScheduleKind::interleaved,
       .zero = 2,
       .gradient_scatter = config::GradientScatter::micro_batch,
       .tie_embeddings = true},
      {.tp = 2,
       .schedule = ScheduleKind::zero_bubble_h1,
       .zero = 2,
       .gathered_input = config::GatheredInput::keep,
       .kv_heads = 1,
       .vocab = 259},
  };
  for (const Dtype dtype : {Dtype::bf16, Dtype::fp32}) {
    for (LayoutChoice choice : cuts) {
      choice.replicas = 4;
      std::optional<JobResult> all;
      for (const int64_t dp : {4, 2, 1, 3}) {
        if (dp * choice.tp * choice.cp * choice.pp > 8) continue;
        choice.dp = dp;
        SCOPED_TRACE(describe(choice));
        const JobResult job = run_job(small_run(choice, dtype, 5), {.steps = 5});
        if (!all) all = job;
        EXPECT_EQ(job.hash, all->hash);
        EXPECT_EQ(job.losses, all->losses);
        EXPECT_EQ(job.grad_norms, all->grad_norms);
      }
    }
  }
}

// Nor does the stage of ZeRO, when gradients are scattered once a chunk.
TEST(Parity, TheStageOfZeroDoesNotChangeABit) {
  std::optional<JobResult> all;
  for (const int64_t zero : {0, 1, 2, 3}) {
    const JobResult job =
        run_job(small_run({.tp = 2, .pp = 2, .dp = 2, .zero = zero}, Dtype::bf16, 5), {.steps = 5});
    if (!all) all = job;
    EXPECT_EQ(job.hash, all->hash) << zero;
    EXPECT_EQ(job.losses, all->losses) << zero;
  }
}

// Nor does where ranks stand.
TEST(Parity, TheOrderOfRanksDoesNotChangeABit) {
  config::RunFile run = small_run({.tp = 2, .cp = 2, .pp = 2, .dp = 2}, Dtype::bf16, 5);
  const JobResult usual = run_job(run, {.steps = 5});
  for (const char* order : {"pp-cp-dp-tp", "cp-dp-tp-pp", "cp-tp-pp-dp"}) {
    run.parallel.rank_order = order;
    const JobResult job = run_job(run, {.steps = 5});
    EXPECT_EQ(job.hash, usual.hash) << order;
    EXPECT_EQ(job.losses, usual.losses) << order;
  }
}

// Nor does computing again instead of keeping, or keeping what would be gathered again.
TEST(Parity, RecomputationDoesNotChangeABit) {
  for (const int64_t cp : {1, 2}) {
    const JobResult plain = run_job(small_run({.tp = 2, .cp = cp}, Dtype::bf16, 5), {.steps = 5});
    const std::vector<std::vector<std::string>> lists = {{"norm"}, {"swiglu"}, {"attention"}, {"full"}};
    for (const auto& recompute : lists) {
      const JobResult job =
          run_job(small_run({.tp = 2, .cp = cp, .recompute = recompute}, Dtype::bf16, 5), {.steps = 5});
      EXPECT_EQ(job.hash, plain.hash) << recompute[0];
    }
    const LayoutChoice kept{.tp = 2, .cp = cp, .gathered_input = config::GatheredInput::keep};
    EXPECT_EQ(run_job(small_run(kept, Dtype::bf16, 5), {.steps = 5}).hash, plain.hash);
  }
}

// bf16 learns as fp32 does: the mean loss of the last 20 of 200 steps.
TEST(Parity, Bf16EndsWithinOnePercentOfFp32) {
  constexpr int64_t steps = 200;
  const auto last_mean = [](const LayoutChoice& choice, Dtype dtype) {
    const JobResult job = run_job(small_run(choice, dtype, steps), {.steps = steps});
    return std::accumulate(job.losses.end() - 20, job.losses.end(), 0.0) / 20;
  };
  const double reference = last_mean({}, Dtype::fp32);
  EXPECT_LT(reference, 3.0) << "the job must have learnt something";
  for (const LayoutChoice& choice :
       {LayoutChoice{}, LayoutChoice{.tp = 2, .pp = 2, .dp = 2, .zero = 3},
        LayoutChoice{.cp = 2, .pp = 2, .schedule = ScheduleKind::zero_bubble_h1}}) {
    EXPECT_NEAR(last_mean(choice, Dtype::bf16) / reference, 1, 0.01) << describe(choice);
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
  References references(Dtype::fp32, 1, {.steps = 0});
  for (const LayoutChoice& choice : layouts()) {
    const JobResult job = run_job(small_run(choice, Dtype::fp32, 1), {.steps = 0});
    EXPECT_EQ(job.hash, references.of(choice).hash) << describe(choice);
  }
}

}  // namespace
}  // namespace lockstep::tests
