// The batch-size ramp: the first steps of a run may take fewer sequences than train.global_batch.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "config/run_file.hpp"

namespace lockstep::config {

struct BatchStage {
  int64_t sequences = 0;  // of one step
  int64_t last_step = 0;  // 1 is the run's first step

  bool operator==(const BatchStage&) const = default;
};

// One entry of train.batch_ramp, "SEQUENCES:LAST_STEP"; nothing when it is not of that form, or a number is
// not from 1 to 10^12.
std::optional<BatchStage> parse_batch_stage(const std::string& entry);

// The stages of a run that has passed the rules: those of the ramp, then global_batch to the last step.
std::vector<BatchStage> batch_stages(const TrainConfig& train);

// Sequences of step `step` (1 is the first), and of all steps before it.
int64_t batch_of_step(const TrainConfig& train, int64_t step);
int64_t sequences_before_step(const TrainConfig& train, int64_t step);

}  // namespace lockstep::config
