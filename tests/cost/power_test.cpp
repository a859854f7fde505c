#include "cost/power.hpp"

#include <gtest/gtest.h>

#include "base/json.hpp"
#include "config/presets.hpp"

namespace lockstep::cost {
namespace {

// 12 GPUs on nodes of 8: two nodes.
config::RunFile run_of_twelve() {
  config::RunFile run;
  run.parallel.tp = 4;
  run.parallel.dp = 3;
  config::ClusterConfig& c = run.cluster;
  c.gpus_per_node = 8;
  c.gpu_compute_watts = 700;
  c.gpu_communication_watts = 300;
  c.gpu_idle_watts = 100;
  c.host_watts_per_node = 3000;
  c.network_watts_per_gpu = 50;
  c.pue = 1.2;
  return run;
}

// Ten seconds: six of kernels, two of transfers, two of waiting.
StepSplit ten_seconds() {
  StepSplit split;
  split.compute = 5.5, split.optimizer = 0.5;
  split.tp = 0.5, split.cp = 0.25, split.pp = 0.25, split.dp = 1;
  split.bubble = 1, split.data = 0.5, split.barrier = 0.5;
  return split;
}

TEST(Power, AddsUpWhatEachPartDraws) {
  const std::optional<Power> power = power_of(run_of_twelve(), ten_seconds());
  ASSERT_TRUE(power.has_value());
  // 0.6 x 700 + 0.2 x 300 + 0.2 x 100 = 500 W a GPU; 6,000 + 6,000 + 600 W of equipment, x 1.2.
  EXPECT_NEAR(power->one_gpu, 500, 1e-9);
  EXPECT_NEAR(power->gpus, 6000, 1e-9);
  EXPECT_NEAR(power->hosts, 6000, 1e-9);
  EXPECT_NEAR(power->network, 600, 1e-9);
  EXPECT_NEAR(power->overhead, 2520, 1e-9);
  EXPECT_NEAR(power->average(), 15120, 1e-9);
  EXPECT_NEAR(power->peak, 1.2 * (12 * 700 + 6000 + 600), 1e-9);
  EXPECT_NEAR(megawatt_hours(2e6, 3), 144, 1e-12);
}

TEST(Power, JsonHasTheEnergyOfAStepAndAToken) {
  StepFigures step;
  step.seconds = 10;
  step.tokens_per_second = 40;
  const Json json = power_json(power_of(run_of_twelve(), ten_seconds()), step);
  EXPECT_NEAR(json["average_megawatts"].get<double>(), 0.01512, 1e-12);
  EXPECT_NEAR(json["joules_per_step"].get<double>(), 151200, 1e-6);
  EXPECT_NEAR(json["joules_per_token"].get<double>(), 378, 1e-9);
  EXPECT_NEAR(json["gpus_megawatts"].get<double>() + json["hosts_megawatts"].get<double>() +
                  json["network_megawatts"].get<double>() + json["overhead_megawatts"].get<double>(),
              json["average_megawatts"].get<double>(), 1e-12);
}

TEST(Power, IsNotKnownWithoutTheDevicesWatts) {
  config::RunFile run = run_of_twelve();
  run.cluster.gpu_compute_watts = 0;
  EXPECT_FALSE(power_of(run, ten_seconds()).has_value());
  EXPECT_TRUE(power_json(std::nullopt, {}).is_null());
  EXPECT_NE(power_text(run, std::nullopt, {}, {}).find("cluster.gpu_compute_watts is 0"), std::string::npos);
  EXPECT_FALSE(power_of(run_of_twelve(), {}).has_value()) << "no step, no mean";
}

TEST(Power, EveryDeviceAndClusterOfTheDataSheetsHasIt) {
  for (const std::string& name : config::preset_names(config::PresetKind::device)) {
    double compute = 0, communication = 0, idle = 0;
    for (const config::Entry& entry : config::preset_entries(config::PresetKind::device, name)) {
      const double* value = std::get_if<double>(&entry.value);
      if (entry.key == "gpu_compute_watts") compute = value != nullptr ? *value : 0;
      if (entry.key == "gpu_communication_watts") communication = value != nullptr ? *value : 0;
      if (entry.key == "gpu_idle_watts") idle = value != nullptr ? *value : 0;
    }
    EXPECT_GT(idle, 0) << name;
    EXPECT_GT(communication, idle) << name;
    EXPECT_GT(compute, communication) << name;
  }
}

}  // namespace
}  // namespace lockstep::cost
