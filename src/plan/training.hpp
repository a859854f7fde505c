// The whole training: its steps, what they read, how long they take and what that costs.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <vector>

#include "config/run_file.hpp"

namespace lockstep::plan {

// Steps of one batch: of a stage of train.batch_ramp, or the rest, of train.global_batch.
struct TrainingStage {
  int64_t sequences = 0;  // of a step
  double steps = 0;       // the last may be part of one, where train.tokens is no whole number of steps
};
// Of train.tokens when given: the ramp's steps first, all that they leave in steps of global_batch. Else of
// train.steps. Stages that the run does not reach are not there. `run` has passed config's rules.
std::vector<TrainingStage> training_stages(const config::TrainConfig& train);

struct Training {
  double tokens = 0;  // that are read
  double days = 0;
  double gpu_hours = 0;
  double usd = 0;
  std::optional<double> megawatt_hours;  // at the meter; where the cluster's power is known
};

struct StepCost {
  double seconds = 0;
  std::optional<double> watts;  // mean over the step, of the whole run
};
// `step`: of so many sequences.
Training training_of(const config::RunFile& run, const std::function<StepCost(int64_t sequences)>& step);

}  // namespace lockstep::plan
