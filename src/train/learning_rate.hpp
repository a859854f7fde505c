// Learning rate by step: linear warm-up, then cosine.
#pragma once

#include <cstdint>

#include "config/run_file.hpp"

namespace lockstep::train {

// `step` counts from 0. Warm-up reaches lr in its last step; the cosine (Loshchilov and Hutter,
// arXiv:1608.03983) ends at lr x lr_min_ratio in the last step. A warm-up as long as the run or longer is
// simply not finished.
double learning_rate(const config::TrainConfig& train, int64_t step);

}  // namespace lockstep::train
