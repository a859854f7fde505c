// The trainer's parts: initial weights, flat layout, AdamW, learning rate.
#include <gtest/gtest.h>
#include <torch/torch.h>

#include <cmath>
#include <set>

#include "train/adamw.hpp"
#include "train/harness.hpp"
#include "train/initial_weights.hpp"
#include "train/learning_rate.hpp"

namespace lockstep::train {
namespace {

using tests::small_run;

TEST(InitialWeights, AreNormal) {
  double sum = 0, square = 0, fourth = 0;
  const int64_t n = 200000;
  for (int64_t i = 0; i < n; ++i) {
    const double x = initial_normal(7, "model.layers.3.mlp.up_proj.weight", i);
    sum += x;
    square += x * x;
    fourth += x * x * x * x;
  }
  const double count = static_cast<double>(n);
  EXPECT_NEAR(sum / count, 0, 4 / std::sqrt(count));
  EXPECT_NEAR(square / count, 1, 4 * std::sqrt(2 / count));
  EXPECT_NEAR(fourth / count, 3, 4 * std::sqrt(96 / count));
  EXPECT_NE(initial_normal(7, "a", 0), initial_normal(7, "b", 0));
  EXPECT_NE(initial_normal(7, "a", 0), initial_normal(8, "a", 0));
}

// Over all ranks every element of every parameter is held once, or by every tp rank when replicated.
TEST(FlatLayout, CoversTheModel) {
  const config::RunFile run =
      small_run({.tp = 2, .pp = 2, .virtual_stages = 2, .schedule = config::ScheduleKind::interleaved},
                config::Dtype::fp32, 1);
  const parallel::Layout layout(run);
  std::map<int64_t, int> holders;
  for (int stage = 0; stage < 2; ++stage) {
    for (int chunk = 0; chunk < 2; ++chunk) {
      for (int tp = 0; tp < 2; ++tp) {
        const FlatLayout flat(layout, stage, chunk, tp);
        for (const FlatEntry& e : flat.entries()) {
          for (int64_t i = 0; i < e.count; ++i) ++holders[e.model_offset + e.global_index(i)];
        }
      }
    }
  }
  EXPECT_EQ(static_cast<int64_t>(holders.size()), model::parameter_count(run.model));
  const int64_t norms = run.model.hidden * (2 * run.model.layers + 1);
  EXPECT_EQ(std::count_if(holders.begin(), holders.end(), [](const auto& h) { return h.second == 2; }),
            norms);
}

TEST(AdamW, IsTorchs) {
  config::TrainConfig train;
  train.weight_decay = 0.1;
  const int64_t n = 37;
  constexpr int64_t decayed = 20;  // elements; the others are those of a norm
  at::Tensor weights = at::randn({n}, at::kDouble);
  torch::Tensor reference = weights.slice(0, 0, decayed).clone().requires_grad_(true);
  torch::Tensor norm = weights.slice(0, decayed).clone().requires_grad_(true);
  const auto options = [&](double decay) {
    return std::make_unique<torch::optim::AdamWOptions>(torch::optim::AdamWOptions(2e-3)
                                                            .betas({train.beta1, train.beta2})
                                                            .eps(train.eps)
                                                            .weight_decay(decay));
  };
  torch::optim::AdamW torch_adam(std::vector<torch::optim::OptimizerParamGroup>{
      {{reference}, options(train.weight_decay)}, {{norm}, options(0)}});
  std::vector<double> master(weights.data_ptr<double>(), weights.data_ptr<double>() + n), m(n, 0), v(n, 0);
  for (int64_t step = 1; step <= 10; ++step) {
    const at::Tensor g = at::randn({n}, at::kDouble);
    reference.mutable_grad() = g.slice(0, 0, decayed) * 0.25;  // as if clipped
    norm.mutable_grad() = g.slice(0, decayed) * 0.25;
    torch_adam.step();
    const std::span<const double> gradient(g.data_ptr<double>(), static_cast<size_t>(n));
    adamw_step<double>(train, {2e-3, 0.25, step}, {{0, decayed, true}, {decayed, n, false}}, gradient, master,
                       m, v);
  }
  for (int64_t i = 0; i < n; ++i) {
    const double expected = i < decayed ? reference[i].item<double>() : norm[i - decayed].item<double>();
    EXPECT_NEAR(master[static_cast<size_t>(i)], expected, 1e-12);
  }
}

TEST(LearningRate, WarmsUpAndFollowsTheCosine) {
  config::TrainConfig train;
  train.lr = 1;
  train.lr_min_ratio = 0.1;
  train.warmup = 10;
  train.steps = 110;
  EXPECT_DOUBLE_EQ(learning_rate(train, 0), 0.1);
  EXPECT_DOUBLE_EQ(learning_rate(train, 9), 1.0);
  EXPECT_NEAR(learning_rate(train, 59), 0.55, 1e-12);  // half-way
  EXPECT_NEAR(learning_rate(train, 109), 0.1, 1e-12);
  train.warmup = 1000;  // longer than the run
  EXPECT_DOUBLE_EQ(learning_rate(train, 109), 0.11);
}

}  // namespace
}  // namespace lockstep::train
