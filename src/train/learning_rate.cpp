#include "train/learning_rate.hpp"

#include <cmath>
#include <numbers>

namespace lockstep::train {

double learning_rate(const config::TrainConfig& train, int64_t step) {
  if (step < train.warmup)
    return train.lr * static_cast<double>(step + 1) / static_cast<double>(train.warmup);
  const int64_t decay_steps = train.steps - train.warmup;
  const double progress = static_cast<double>(step + 1 - train.warmup) / static_cast<double>(decay_steps);
  const double least = train.lr * train.lr_min_ratio;
  return least + (train.lr - least) * 0.5 * (1.0 + std::cos(std::numbers::pi * progress));
}

}  // namespace lockstep::train
