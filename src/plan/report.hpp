// What `lockstep plan` says of one layout.
#pragma once

#include <optional>
#include <string>

#include "base/json_fwd.hpp"
#include "cost/power.hpp"
#include "cost/text.hpp"
#include "plan/memory.hpp"
#include "plan/step_time.hpp"
#include "plan/traffic.hpp"
#include "plan/training.hpp"

namespace lockstep::plan {

struct Plan {
  config::RunFile run;
  MemoryReport memory;
  std::vector<MemoryMoment> curve;  // of the fullest stage
  TrainingState state;
  Traffic traffic;  // of a rank of the fullest stage
  cost::StepFigures step;
  Training training;
  std::optional<cost::Power> power;
};

// Everything about one layout. `run` has passed config's rules.
Plan plan_of(const config::RunFile& run);

// The document of `plan --json`: layout, model, memory, memory_curve, traffic, step, power, training.
Json plan_json(const Plan& plan);

// For a person.
std::string plan_text(const Plan& plan, const cost::Style& style);
}  // namespace lockstep::plan
