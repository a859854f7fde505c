// The optimizer's update of one rank's shard of a chunk: master weights and moments in fp32, or fp64 in fp64
// runs. Elements do not see each other: any cut into shards and ranges gives bitwise the same weights.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "config/run_file.hpp"
#include "model/parameters.hpp"

namespace lockstep::train {

struct OptimizerStep {
  double lr = 0;
  double gradient_scale = 1;  // clipping: gradients are multiplied by it
  int64_t step = 1;           // updates with this one, for AdamW's bias correction: 1 is the first
};

// A range of the shard, and whether weight decay applies to it.
struct DecayRange {
  int64_t begin = 0;
  int64_t end = 0;
  bool decay = true;
};

// Whether parameters of the family are decayed: those that train.no_decay does not name.
bool decays(const config::TrainConfig& train, model::Family family);

// One update over the whole shard with train.optimizer:
//  - AdamW (Loshchilov and Hutter, arXiv:1711.05101): moments m and v, decay decoupled from the gradient;
//  - SGD with momentum as torch::optim::SGD has it, without dampening: g' = g + weight_decay w,
//    v = momentum v + g', w -= lr v; without momentum w -= lr g'.
// All spans have the shard's length; ranges cover it without overlap. `moments`: as many spans as
// config::optimizer_moments(train) says, zero before the first update. RunError where they do not fit.
template <typename T>
void optimizer_step(const config::TrainConfig& train, const OptimizerStep& step,
                    const std::vector<DecayRange>& ranges, std::span<const T> gradient, std::span<T> master,
                    const std::vector<std::span<T>>& moments);

}  // namespace lockstep::train
