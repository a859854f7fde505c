#include "cost/power.hpp"

#include <gtest/gtest.h>

#include <map>

#include "base/json.hpp"
#include "config/load.hpp"
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

// Watts of a preset's cluster, its device's included.
config::ClusterConfig preset(const std::string& name) {
  const config::Examined examined = config::examine_run_text(
      "name = \"t\"\n[model]\npreset = \"llama3-8b\"\n[cluster]\npreset = \"" + name +
          "\"\ngpus = 8\n[parallel]\ndp = 8\n[train]\nsequence = 4096\nglobal_batch = 8\n",
      "t.toml", {});
  EXPECT_TRUE(examined.problems.empty()) << config::to_string(examined.problems);
  return examined.run.cluster;
}

// A node at full load draws no more than its data sheet's most, which its fans, disks and power supplies'
// losses leave by 10 to 20 %. DGX A100: 6.5 kW; DGX H100: 10.2 kW; DGX B200: 14.3 kW; GB200 NVL72, a rack:
// about 120 kW.
TEST(Power, ANodeAtFullLoadDrawsWhatItsDataSheetLeavesRoomFor) {
  const std::map<std::string, double> sheets = {{"a100-selene", 6500},
                                                {"h100-24k", 10200},
                                                {"h100-rails", 10200},
                                                {"b200-nvl8", 14300},
                                                {"gb200-nvl72", 120000}};
  for (const std::string& name : config::preset_names(config::PresetKind::cluster)) {
    const config::ClusterConfig c = preset(name);
    if (c.gpu_compute_watts == 0) {
      EXPECT_EQ(name, "local") << "a cluster of known devices without watts";
      continue;
    }
    ASSERT_TRUE(sheets.contains(name)) << name << ": give its data sheet's watts here";
    const double node = static_cast<double>(c.gpus_per_node) * c.gpu_compute_watts + c.host_watts_per_node;
    EXPECT_LT(node, sheets.at(name)) << name;
    EXPECT_GT(node, 0.8 * sheets.at(name)) << name;
    // A loaded GPU that waits still holds its context and clocks, and a transfer keeps memory and links busy.
    EXPECT_GT(c.gpu_idle_watts, 0.1 * c.gpu_compute_watts) << name;
    EXPECT_GT(c.gpu_communication_watts, c.gpu_idle_watts) << name;
    EXPECT_LT(c.gpu_communication_watts, c.gpu_compute_watts) << name;
    // A switch's port of 400 Gb/s with optics at both ends takes 10 to 25 W, in three layers; of 200 Gb/s
    // less.
    EXPECT_GE(c.network_watts_per_gpu, 20) << name;
    EXPECT_LE(c.network_watts_per_gpu, 75) << name;
    EXPECT_GE(c.pue, 1.05) << name << ": below what any operator states";
    EXPECT_LE(c.pue, 1.4) << name << ": above the industry's newer sites";
  }
}

// Data sheets: the most that a module takes.
TEST(Power, ADeviceComputesAtItsDataSheetsLimit) {
  const std::map<std::string, double> sheets = {{"a100-80g", 400}, {"h100-80g", 700}, {"h100-96g", 500},
                                                {"h200", 700},     {"b200", 1000},    {"gb200", 1200}};
  for (const std::string& name : config::preset_names(config::PresetKind::device)) {
    ASSERT_TRUE(sheets.contains(name)) << name << ": give its data sheet's watts here";
    for (const config::Entry& entry : config::preset_entries(config::PresetKind::device, name)) {
      if (entry.key != "gpu_compute_watts") continue;
      EXPECT_EQ(std::get<double>(entry.value), sheets.at(name)) << name;
    }
  }
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
