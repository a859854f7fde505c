// The optimizers against LibTorch's; that no cut of a shard changes a bit; whose weights decay.
#include "train/optimizer.hpp"

#include <gtest/gtest.h>
#include <torch/torch.h>

#include <random>

#include "base/error.hpp"
#include "config/optimizer_state.hpp"

namespace lockstep::train {
namespace {

template <typename T>
struct State {
  std::vector<T> master;
  std::vector<std::vector<T>> moments;

  State(const config::TrainConfig& train, std::vector<T> weights)
      : master(std::move(weights)),
        moments(static_cast<size_t>(config::optimizer_moments(train)), std::vector<T>(master.size(), 0)) {}

  // Elements begin..end-1, as if they were a whole shard.
  void update(const config::TrainConfig& train, const OptimizerStep& step,
              const std::vector<DecayRange>& ranges, const std::vector<T>& gradient, size_t begin,
              size_t end) {
    std::vector<std::span<T>> parts;
    for (std::vector<T>& moment : moments) parts.push_back(std::span(moment).subspan(begin, end - begin));
    optimizer_step<T>(train, step, ranges, std::span(gradient).subspan(begin, end - begin),
                      std::span(master).subspan(begin, end - begin), parts);
  }
};

template <typename T>
std::vector<T> normal(std::mt19937_64& random, size_t n) {
  std::normal_distribution<T> draw;
  std::vector<T> values(n);
  for (T& value : values) value = draw(random);
  return values;
}

config::TrainConfig sgd(double momentum) {
  config::TrainConfig train;
  train.optimizer = config::Optimizer::sgd;
  train.momentum = momentum;
  return train;
}

constexpr double lr_of_step(int64_t step) { return 1e-3 * static_cast<double>(step); }
constexpr double clip = 0.25;

// Ten steps of 37 weights, the first 20 decayed, beside LibTorch's optimizer with two groups.
template <typename Torch, typename Options>
void expect_torchs(const config::TrainConfig& train, Options (*options)(const config::TrainConfig&)) {
  constexpr int64_t n = 37, decayed = 20;
  std::mt19937_64 random(7);
  State<double> ours(train, normal<double>(random, n));
  const torch::Tensor start = torch::tensor(ours.master, torch::kDouble);
  std::vector<torch::Tensor> parts = {start.slice(0, 0, decayed).clone().requires_grad_(true),
                                      start.slice(0, decayed).clone().requires_grad_(true)};
  std::vector<torch::optim::OptimizerParamGroup> groups;
  for (const double decay : {train.weight_decay, 0.0}) {
    groups.emplace_back(std::vector<torch::Tensor>{parts[groups.size()]},
                        std::make_unique<Options>(options(train).weight_decay(decay)));
  }
  Torch theirs(groups, options(train));
  for (int64_t step = 1; step <= 10; ++step) {
    const std::vector<double> gradient = normal<double>(random, n);
    const torch::Tensor g = torch::tensor(gradient, torch::kDouble) * clip;
    parts[0].mutable_grad() = g.slice(0, 0, decayed).clone();
    parts[1].mutable_grad() = g.slice(0, decayed).clone();
    for (auto& group : theirs.param_groups()) group.options().set_lr(lr_of_step(step));
    theirs.step();
    ours.update(train, {lr_of_step(step), clip, step}, {{0, decayed, true}, {decayed, n, false}}, gradient, 0,
                n);
    const torch::Tensor expected = torch::cat(parts).detach();
    for (int64_t i = 0; i < n; ++i) {
      ASSERT_NEAR(ours.master[static_cast<size_t>(i)], expected[i].item<double>(), 1e-12)
          << "step " << step << ", element " << i;
    }
  }
  EXPECT_GT((torch::cat(parts).detach() - start).abs().min().item<double>(), 1e-6);  // all have moved
}

torch::optim::AdamWOptions adamw_options(const config::TrainConfig& train) {
  return torch::optim::AdamWOptions(1e-3).betas({train.beta1, train.beta2}).eps(train.eps);
}

torch::optim::SGDOptions sgd_options(const config::TrainConfig& train) {
  return torch::optim::SGDOptions(1e-3).momentum(train.momentum);
}

TEST(Optimizer, AdamWIsTorchs) {
  config::TrainConfig train;
  for (const double decay : {0.0, 0.1}) {
    train.weight_decay = decay;
    expect_torchs<torch::optim::AdamW>(train, adamw_options);
  }
}

TEST(Optimizer, SgdIsTorchs) {
  for (const double momentum : {0.0, 0.5, 0.9}) {
    for (const double decay : {0.0, 0.1}) {
      config::TrainConfig train = sgd(momentum);
      train.weight_decay = decay;
      expect_torchs<torch::optim::SGD>(train, sgd_options);
    }
  }
}

// Where a shard or a range ends decides which elements the vector loop takes and which its remainder.
template <typename T>
void expect_cuts_change_nothing(const config::TrainConfig& train) {
  constexpr size_t n = 203;
  std::mt19937_64 random(11);
  const std::vector<T> weights = normal<T>(random, n);
  State<T> whole(train, weights), cut(train, weights);
  for (int64_t step = 1; step <= 5; ++step) {
    const std::vector<T> gradient = normal<T>(random, n);
    whole.update(train, {1e-2, 0.3, step}, {{0, n, true}}, gradient, 0, n);
    for (size_t begin = 0; begin < n;) {
      const size_t end = std::min<size_t>(n, begin + 1 + random() % 40);
      const auto length = static_cast<int64_t>(end - begin);
      const auto middle = static_cast<int64_t>(random() % static_cast<uint64_t>(length + 1));
      cut.update(train, {1e-2, 0.3, step}, {{0, middle, true}, {middle, length, true}}, gradient, begin, end);
      begin = end;
    }
    ASSERT_EQ(whole.master, cut.master);
    ASSERT_EQ(whole.moments, cut.moments);
  }
  EXPECT_NE(whole.master, weights);
}

TEST(Optimizer, NoCutOfTheShardChangesABit) {
  for (const config::TrainConfig& train : {config::TrainConfig{}, sgd(0.9), sgd(0)}) {
    expect_cuts_change_nothing<float>(train);
    expect_cuts_change_nothing<double>(train);
  }
}

TEST(Optimizer, HoldsWhatItNeedsAndRefusesWhatDoesNotFit) {
  EXPECT_EQ(config::optimizer_moments({}), 2);
  EXPECT_EQ(config::optimizer_moments(sgd(0.9)), 1);
  EXPECT_EQ(config::optimizer_moments(sgd(0)), 0);
  std::vector<float> gradient(4), master(4), moment(4), three(3);
  const auto update = [&](const config::TrainConfig& train, std::vector<DecayRange> ranges,
                          std::vector<std::span<float>> moments) {
    optimizer_step<float>(train, {1e-3, 1, 1}, ranges, gradient, master, moments);
  };
  EXPECT_NO_THROW(update(sgd(0.9), {{0, 4, true}}, {moment}));
  EXPECT_THROW(update({}, {{0, 4, true}}, {moment}), RunError);
  EXPECT_THROW(update(sgd(0), {{0, 4, true}}, {moment}), RunError);
  EXPECT_THROW(update(sgd(0.9), {{0, 4, true}}, {three}), RunError);
  EXPECT_THROW(update(sgd(0.9), {{0, 5, true}}, {moment}), RunError);
  EXPECT_THROW(update(sgd(0.9), {{-1, 4, true}}, {moment}), RunError);
}

TEST(Optimizer, FamiliesThatTheRunNamesDoNotDecay) {
  const auto decayed = [](std::vector<std::string> no_decay) {
    config::TrainConfig train;
    train.no_decay = std::move(no_decay);
    std::vector<bool> all;
    for (const model::Family family :
         {model::Family::norm, model::Family::embedding, model::Family::output, model::Family::matrix}) {
      all.push_back(decays(train, family));
    }
    return all;
  };
  EXPECT_EQ(decayed({"norm"}), (std::vector<bool>{false, true, true, true}));
  EXPECT_EQ(decayed({}), (std::vector<bool>{true, true, true, true}));
  EXPECT_EQ(decayed({"embedding", "output"}), (std::vector<bool>{true, false, false, true}));
  EXPECT_EQ(decayed({"norm", "output", "embedding"}), (std::vector<bool>{false, false, false, true}));
}

}  // namespace
}  // namespace lockstep::train
