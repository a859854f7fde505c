// AdamW (Loshchilov and Hutter, arXiv:1711.05101) on one rank's shard of a chunk: master weights and both
// moments in fp32, or fp64 in fp64 runs.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "config/run_file.hpp"

namespace lockstep::train {

struct AdamStep {
  double lr = 0;
  double gradient_scale = 1;  // clipping: gradients are multiplied by it
  int64_t step = 1;           // 1 is the first, for bias correction
};

// A range of the shard, and whether weight decay applies to it.
struct DecayRange {
  int64_t begin = 0;
  int64_t end = 0;
  bool decay = true;
};

// One update over the whole shard. All spans have the shard's length; ranges cover it without overlap.
template <typename T>
void adamw_step(const config::TrainConfig& train, const AdamStep& step, const std::vector<DecayRange>& ranges,
                std::span<const T> gradient, std::span<T> master, std::span<T> moment1, std::span<T> moment2);

}  // namespace lockstep::train
