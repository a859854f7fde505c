#include "train/learning_rate.hpp"

#include <algorithm>
#include <cmath>
#include <numbers>

namespace lockstep::train {
namespace {

using config::LearningRateSchedule;

// First step of the fall, counted from 0.
int64_t fall_begins(const config::TrainConfig& train) {
  if (train.schedule != LearningRateSchedule::wsd) return train.warmup;
  const int64_t tenth = train.steps / 10 + (train.steps % 10 != 0 ? 1 : 0);
  const int64_t fall = train.decay_steps > 0 ? train.decay_steps : tenth;
  return std::max(train.warmup, train.steps - fall);
}

}  // namespace

double learning_rate(const config::TrainConfig& train, int64_t step) {
  if (step < train.warmup)
    return train.lr * static_cast<double>(step + 1) / static_cast<double>(train.warmup);
  const int64_t begin = fall_begins(train);
  if (train.schedule == LearningRateSchedule::constant || step < begin) return train.lr;
  const double progress = static_cast<double>(step + 1 - begin) / static_cast<double>(train.steps - begin);
  const double least = train.lr * train.lr_min_ratio;
  const double share = train.schedule == LearningRateSchedule::cosine
                           ? 0.5 * (1.0 + std::cos(std::numbers::pi * progress))
                           : 1.0 - progress;
  return least + (train.lr - least) * share;
}

}  // namespace lockstep::train
