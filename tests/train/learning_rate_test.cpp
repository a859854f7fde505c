// Learning rates against closed forms: warm-up, every schedule, their ends and joints.
#include "train/learning_rate.hpp"

#include <gtest/gtest.h>

#include <cmath>
#include <numbers>

namespace lockstep::train {
namespace {

using config::LearningRateSchedule;

config::TrainConfig train_of(LearningRateSchedule schedule, int64_t warmup, int64_t steps,
                             int64_t decay_steps = 0) {
  config::TrainConfig train;
  train.lr = 2;
  train.lr_min_ratio = 0.1;
  train.warmup = warmup;
  train.steps = steps;
  train.schedule = schedule;
  train.decay_steps = decay_steps;
  return train;
}

constexpr LearningRateSchedule all_schedules[] = {LearningRateSchedule::cosine, LearningRateSchedule::linear,
                                                  LearningRateSchedule::wsd, LearningRateSchedule::constant};

TEST(LearningRate, WarmsUpAlikeWhateverFollows) {
  for (const LearningRateSchedule schedule : all_schedules) {
    const auto train = train_of(schedule, 10, 110);
    for (int64_t step = 0; step < 10; ++step)
      EXPECT_DOUBLE_EQ(learning_rate(train, step), 0.2 * static_cast<double>(step + 1));
    EXPECT_EQ(learning_rate(train, 9), 2.0);
    EXPECT_LE(learning_rate(train, 10), 2.0);
  }
}

TEST(LearningRate, AWarmUpAsLongAsTheRunOrLongerIsAllThereIs) {
  for (const LearningRateSchedule schedule : all_schedules) {
    for (const int64_t warmup : {110, 1000}) {
      const auto train = train_of(schedule, warmup, 110);
      for (int64_t step = 0; step < 110; ++step) {
        EXPECT_DOUBLE_EQ(learning_rate(train, step),
                         2.0 * static_cast<double>(step + 1) / static_cast<double>(warmup));
      }
    }
    // One step is left for the fall.
    const double end = schedule == LearningRateSchedule::constant ? 2.0 : 0.2;
    EXPECT_DOUBLE_EQ(learning_rate(train_of(schedule, 109, 110), 109), end);
    EXPECT_DOUBLE_EQ(learning_rate(train_of(schedule, 0, 1), 0), end);
  }
}

TEST(LearningRate, Cosine) {
  const auto train = train_of(LearningRateSchedule::cosine, 10, 110);
  for (int64_t step = 10; step < 110; ++step) {
    const double angle = std::numbers::pi * static_cast<double>(step - 9) / 100;
    EXPECT_NEAR(learning_rate(train, step), 1.1 + 0.9 * std::cos(angle), 1e-12);
  }
  EXPECT_NEAR(learning_rate(train, 59), 1.1, 1e-12);  // half-way
  EXPECT_DOUBLE_EQ(learning_rate(train, 109), 0.2);
}

TEST(LearningRate, Linear) {
  const auto train = train_of(LearningRateSchedule::linear, 10, 110);
  for (int64_t step = 9; step < 110; ++step)
    EXPECT_NEAR(learning_rate(train, step), 2 - 0.018 * static_cast<double>(step - 9), 1e-12);
  EXPECT_DOUBLE_EQ(learning_rate(train, 109), 0.2);
  EXPECT_DOUBLE_EQ(learning_rate(train_of(LearningRateSchedule::linear, 0, 4), 0), 1.55);
}

TEST(LearningRate, WarmUpStableDecay) {
  const auto train = train_of(LearningRateSchedule::wsd, 10, 110, 30);
  for (int64_t step = 9; step < 80; ++step) EXPECT_EQ(learning_rate(train, step), 2.0);
  for (int64_t step = 79; step < 110; ++step)
    EXPECT_NEAR(learning_rate(train, step), 2 - 0.06 * static_cast<double>(step - 79), 1e-12);
  EXPECT_DOUBLE_EQ(learning_rate(train, 109), 0.2);
}

TEST(LearningRate, TheDecayIsATenthOfTheRunRoundedUpUnlessSaid) {
  for (const int64_t steps : {20, 101, 109, 110, 1000}) {
    const auto train = train_of(LearningRateSchedule::wsd, 2, steps);
    const auto fall = static_cast<int64_t>(std::ceil(static_cast<double>(steps) / 10));
    EXPECT_EQ(learning_rate(train, steps - fall - 1), 2.0);
    EXPECT_NEAR(learning_rate(train, steps - fall), 2 - 1.8 / static_cast<double>(fall), 1e-12);
    EXPECT_DOUBLE_EQ(learning_rate(train, steps - 1), 0.2);
  }
}

TEST(LearningRate, AWarmUpThatReachesIntoTheDecayShortensIt) {
  const auto train = train_of(LearningRateSchedule::wsd, 60, 100, 100);
  EXPECT_EQ(learning_rate(train, 59), 2.0);
  EXPECT_NEAR(learning_rate(train, 60), 2 - 1.8 / 40, 1e-12);
  EXPECT_NEAR(learning_rate(train, 79), 1.1, 1e-12);
  EXPECT_DOUBLE_EQ(learning_rate(train, 99), 0.2);
}

TEST(LearningRate, ConstantStays) {
  const auto train = train_of(LearningRateSchedule::constant, 10, 110);
  for (int64_t step = 9; step < 110; ++step) EXPECT_EQ(learning_rate(train, step), 2.0);
}

}  // namespace
}  // namespace lockstep::train
