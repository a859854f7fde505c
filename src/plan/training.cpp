#include "plan/training.hpp"

#include <algorithm>

#include "config/batch_ramp.hpp"
#include "cost/power.hpp"

namespace lockstep::plan {

std::vector<TrainingStage> training_stages(const config::TrainConfig& train) {
  const double sequence = static_cast<double>(train.sequence);
  const std::vector<config::BatchStage> stages = config::batch_stages(train);
  std::vector<TrainingStage> out;
  int64_t done = 0;  // steps
  double left = static_cast<double>(train.tokens);
  for (size_t i = 0; i < stages.size(); ++i) {
    const double tokens = static_cast<double>(stages[i].sequences) * sequence;
    const int64_t last = stages[i].last_step;
    double steps = static_cast<double>(std::min(last, train.steps) - done);
    if (train.tokens > 0) {
      const bool rest = i + 1 == stages.size();
      steps = rest ? left / tokens : std::min(static_cast<double>(last - done), left / tokens);
      left -= steps * tokens;
    }
    if (steps > 0) out.push_back({stages[i].sequences, steps});
    done = last;
  }
  return out;
}

Training training_of(const config::RunFile& run, const std::function<StepCost(int64_t sequences)>& step) {
  Training t;
  for (const TrainingStage& stage : training_stages(run.train)) {
    const StepCost cost = step(stage.sequences);
    const double days = stage.steps * cost.seconds / 86400;
    t.tokens += stage.steps * static_cast<double>(stage.sequences * run.train.sequence);
    t.days += days;
    if (cost.watts) {
      t.megawatt_hours = t.megawatt_hours.value_or(0) + cost::megawatt_hours(*cost.watts, days);
    }
  }
  if (run.train.tokens > 0) t.tokens = static_cast<double>(run.train.tokens);  // without rounding
  t.gpu_hours = t.days * 24 * static_cast<double>(run.parallel.world_size());
  t.usd = t.gpu_hours * run.cluster.usd_per_gpu_hour;
  return t;
}

}  // namespace lockstep::plan
