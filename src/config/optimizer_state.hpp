// What an optimizer keeps beside the master weights: the planner prices it, the trainer holds it.
#pragma once

#include <cstdint>

#include "config/run_file.hpp"

namespace lockstep::config {

// Numbers of state per master weight, each as wide as it: AdamW's two moments, SGD's momentum.
inline int64_t optimizer_moments(const TrainConfig& train) {
  if (train.optimizer == Optimizer::adamw) return 2;
  return train.momentum > 0 ? 1 : 0;
}

}  // namespace lockstep::config
