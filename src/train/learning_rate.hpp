// Learning rate by step: linear warm-up, then train.schedule.
#pragma once

#include <cstdint>

#include "config/run_file.hpp"

namespace lockstep::train {

// `step` counts from 0 and is below train.steps. The warm-up reaches lr in its last step, whatever the
// schedule; one as long as the run or longer is simply not finished. After it, with p = the steps done of
// those after the warm-up, this one included, over all of them:
//  - cosine (Loshchilov and Hutter, arXiv:1608.03983): lr_min + (lr - lr_min) (1 + cos(pi p)) / 2,
//    lr_min = lr x lr_min_ratio;
//  - linear: lr - (lr - lr_min) p;
//  - wsd (warm-up, stable, decay; Hu et al., arXiv:2404.06395): lr, and over the last decay_steps of the run
//    (0: a tenth of its steps, rounded up) linear to lr_min; a warm-up that reaches into them shortens the
//    fall;
//  - constant: lr.
// All but the constant end at lr_min in the last step.
double learning_rate(const config::TrainConfig& train, int64_t step);

}  // namespace lockstep::train
