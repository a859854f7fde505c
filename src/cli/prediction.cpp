#include "cli/prediction.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "base/error.hpp"
#include "cli/modelled_run.hpp"
#include "cli/output.hpp"
#include "cluster/calibration.hpp"
#include "config/batch_ramp.hpp"
#include "config/value.hpp"
#include "cost/step_figures.hpp"
#include "sim/shared_cores.hpp"

namespace lockstep::cli {

static_assert(observe::Prediction::part_names == cost::StepSplit::names);

config::RunFile load_modelled_run(const std::string& file, std::vector<std::string> overrides,
                                  const std::string& cluster, const std::set<std::string>& unchosen) {
  if (!cluster.empty()) {
    for (const std::string& one : overrides) {
      if (!one.starts_with("cluster.file")) continue;
      throw UsageError(fmt::format("--cluster {} and --set {}: give one cluster file", cluster, one));
    }
    overrides.push_back("cluster.file=" + config::to_literal(cluster));
  }
  config::RunFile run = config::load_run_file(file, overrides, unchosen);
  for (const std::string& note : run.origin.notes) complain("note: " + note);
  return run;
}

std::string cluster_name(const config::RunFile& run) {
  const auto place = run.origin.where.find("cluster.launch_seconds");
  if (place == run.origin.where.end()) return run.origin.file;
  // "file:line", "preset local", or a flag.
  const size_t colon = place->second.rfind(':');
  const bool line = colon != std::string::npos && colon + 1 < place->second.size() &&
                    place->second.find_first_not_of("0123456789", colon + 1) == std::string::npos;
  return line ? place->second.substr(0, colon) : place->second;
}

observe::Prediction predict_step(const config::RunFile& run) {
  const parallel::Layout layout(run);
  sim::StepOptions options = sim::step_options(run.simulate);
  options.jitter = false;
  const sim::SharedStep shared = sim::simulate_shared_step(layout, checked_programs(layout), options);
  if (!std::isfinite(shared.step.seconds)) {
    throw RunError(fmt::format("with the figures of {} it takes no finite time", cluster_name(run)));
  }
  return {cluster_name(run), shared.step.seconds, shared.step.split.values()};
}

int64_t first_steady_step(const config::TrainConfig& train) {
  constexpr int64_t warm = 4;
  const std::vector<config::BatchStage> stages = config::batch_stages(train);
  const int64_t ramped = stages.size() < 2 ? 0 : stages[stages.size() - 2].last_step;
  return std::max(warm, ramped + 1);
}

double median_step_seconds(const std::vector<observe::StepRecord>& steps, int64_t first) {
  std::vector<double> seconds;
  for (const observe::StepRecord& step : steps) {
    if (step.step >= first && !step.skipped) seconds.push_back(step.seconds);
  }
  return seconds.empty() ? std::numeric_limits<double>::quiet_NaN() : cluster::median(std::move(seconds));
}

std::string off_by(double predicted, double measured) {
  const double share = predicted / measured - 1;
  return fmt::format("{:.1f} % {} than measured", 100 * std::abs(share), share < 0 ? "less" : "more");
}

}  // namespace lockstep::cli
