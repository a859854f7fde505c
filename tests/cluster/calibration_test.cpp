// Fitting recovers what was planted, by Hardware's own reading of the figures, and the file says the same.
#include "cluster/calibration.hpp"

#include <gtest/gtest.h>
#include <unistd.h>

#include <cmath>
#include <filesystem>
#include <fstream>
#include <stdexcept>

#include "base/error.hpp"
#include "cluster/hardware.hpp"
#include "config/run_file.hpp"

namespace lockstep::cluster {
namespace {

constexpr double peak = 4e11;  // FLOP/s

// A machine whose kernels take a fixed time and then run at a rate: the share grows with the size.
double planted_seconds(double flops) { return 5e-6 + flops / 3e11; }

std::vector<KernelSample> planted(double from, double to, int number) {
  std::vector<KernelSample> samples;
  for (int i = 0; i < number; ++i) {
    const double flops = from * std::pow(to / from, i / (number - 1.0));
    samples.push_back({flops, planted_seconds(flops), 1});
  }
  return samples;
}

Hardware hardware_with(config::ClusterConfig cluster) {
  cluster.peak_flops_bf16 = peak;
  cluster.memory_bandwidth = 1e15;  // out of the way
  cluster.memory_efficiency = cluster.gemm_efficiency = cluster.attention_efficiency = 1;
  return Hardware(cluster, config::Dtype::bf16);
}

TEST(Calibration, APlantedMachineIsFoundAgain) {
  config::ClusterConfig cluster;
  cluster.gemm_curve = fit_curve(planted(1e4, 1e9, 200), peak);
  cluster.attention_curve = cluster.gemm_curve;
  const Hardware hardware = hardware_with(cluster);
  // Within a class of a factor 1.8 a curve's straight pieces miss little; sizes that were not samples too.
  for (double flops = 2e4; flops < 7e8; flops *= 1.37) {
    const auto side = static_cast<int64_t>(std::sqrt(flops / 2));
    const double real = 2.0 * static_cast<double>(side * side);
    EXPECT_NEAR(hardware.product_seconds(1, side, side, 1) / planted_seconds(real), 1, 0.04) << flops;
    EXPECT_NEAR(hardware.attention_seconds(flops, 1) / planted_seconds(flops), 1, 0.04) << flops;
  }
}

// Beside each other in a step, kernels of one size that differ in speed take the time that they took.
TEST(Calibration, AMixtureOfKernelsTakesTheTimeThatItTook) {
  const std::vector<KernelSample> samples = {
      {1e6, 1e-4, 16}, {1e6, 4e-4, 16}, {1e6, 2e-5, 4}, {1e8, 5e-3, 2}};
  const double rate = fastest_rate(samples);
  EXPECT_EQ(rate, 1e6 / 2e-5);
  config::ClusterConfig cluster;
  cluster.memory_bandwidth = rate;
  cluster.memory_curve = fit_curve(samples, rate);
  ASSERT_EQ(cluster.memory_curve.size(), 2u);
  const Hardware hardware(cluster, config::Dtype::bf16);
  EXPECT_NEAR(36 * hardware.memory_seconds(1e6), 16 * 1e-4 + 16 * 4e-4 + 4 * 2e-5, 1e-12);
  EXPECT_NEAR(hardware.memory_seconds(1e8), 5e-3, 1e-12);
}

// Config wants ascending sizes and shares in (0, 1], and Hardware never makes a larger kernel shorter: what a
// disturbed measurement says otherwise is put together.
TEST(Calibration, ADisturbedClassIsPutTogetherWithTheNext) {
  const std::vector<KernelSample> samples = {{1e4, 1e-5}, {1e5, 9e-5}, {1e6, 3e-5}, {1e7, 1e-3}};
  const config::Curve curve = fit_curve(samples, peak);
  ASSERT_EQ(curve.size(), 3u);
  EXPECT_NEAR(curve[1].at, (1e5 + 1e6) / 2, 1e-6);
  EXPECT_NEAR(curve[1].value, (1e5 + 1e6) / 12e-5 / peak, 1e-12);
  for (size_t i = 1; i < curve.size(); ++i) {
    EXPECT_GT(curve[i].at, curve[i - 1].at);
    EXPECT_GE(curve[i].at / curve[i].value, curve[i - 1].at / curve[i - 1].value);
  }
}

TEST(Calibration, WhatCannotBeACurveIsRefused) {
  EXPECT_THROW(fit_curve({}, peak), std::invalid_argument);
  EXPECT_THROW(fit_curve({{0, 1}}, peak), std::invalid_argument);
  EXPECT_THROW(fit_curve({{1, 0}}, peak), std::invalid_argument);
  EXPECT_THROW(fit_curve({{1e9, 1e-3}}, 1e11), std::invalid_argument) << "ten times the peak";
  EXPECT_EQ(fit_curve({{1e9, 1e-3}}, 1e12), (config::Curve{{1e9, 1.0}}));
  EXPECT_THROW(fit_messages({{2, 8, 1}}), std::invalid_argument);
  EXPECT_THROW(median({}), std::invalid_argument);
}

TEST(Calibration, MediansAndMessages) {
  EXPECT_EQ(median({3, 1, 2}), 2);
  EXPECT_EQ(median({4, 1, 2, 3}), 2.5);
  const MessageLine line = fit_messages({{2, 1e3, 4e-6}, {2, 1e5, 24e-6}, {2, 1e7, 2004e-6}});
  EXPECT_EQ(line.latency, 4e-6);
  EXPECT_NEAR(line.seconds_per_byte, 2e-10, 1e-16);
}

class ClusterFile : public testing::Test {
 protected:
  ClusterFile() { std::filesystem::create_directories(folder_); }
  ~ClusterFile() override { std::filesystem::remove_all(folder_); }
  std::filesystem::path write(const std::string& name, const std::string& text) const {
    std::ofstream(folder_ / name) << text;
    return folder_ / name;
  }

  std::filesystem::path folder_ = testing::TempDir() + "lockstep_cluster_file" + std::to_string(::getpid());
};

TEST_F(ClusterFile, ReadsBackAsItWas) {
  const auto local = write("local.toml",
                           "name = \"a\"\n[model]\npreset = \"llama3-8b\"\n[cluster]\npreset = "
                           "\"local\"\ngpus = 1\n");
  config::ClusterConfig measured = config::load_run_file(local, {}).cluster;
  measured.gpu = "a \"processor\"";
  measured.cores = 2;
  measured.measured_dtype = "fp32";
  measured.launch_seconds = 1.0 / 3e6;
  measured.peak_flops_bf16 = 395e9;
  measured.gemm_curve = {{1e4, 1.0 / 3}, {1e9, 1}};
  measured.attention_curve = {{1e5, 0.1}};
  measured.memory_curve = {{1e3, 0.25}, {1e7, 0.5}};
  measured.all_reduce_times = {{2, 1024, 3e-6}, {8, 1024, 5e-5}};
  measured.all_gather_times = {{2, 1024, 2e-6}};
  measured.reduce_scatter_times = {{2, 65536, 2e-5}};
  measured.message_times = {{2, 1024, 1e-6}, {2, 65536, 1e-5}};
  const std::string text = cluster_file_text(measured, {"Measured.", "", "By whom."});
  EXPECT_TRUE(text.starts_with("# Measured.\n#\n# By whom.\n[cluster]\n")) << text;
  const auto file = write("measured.toml", text);

  EXPECT_TRUE(text.ends_with("\n# End: this file is whole.\n")) << text;

  // On top of the preset and in its place.
  config::ClusterConfig read = config::load_run_file(local, {"cluster.file=" + file.string()}).cluster;
  EXPECT_EQ(read, measured);
  const auto alone = write("alone.toml",
                           "name = \"a\"\n[model]\npreset = \"llama3-8b\"\n[cluster]\ngpus = 1\nfile = "
                           "\"measured.toml\"\n");
  read = config::load_run_file(alone, {}).cluster;
  measured.preset = "";
  EXPECT_EQ(read, measured);
}

// Whatever line a full disk or a broken copy ends it with.
TEST_F(ClusterFile, CutAnywhereItIsRefused) {
  const auto local = write("local.toml",
                           "name = \"a\"\n[model]\npreset = \"llama3-8b\"\n[cluster]\npreset = "
                           "\"local\"\ngpus = 1\n");
  const config::ClusterConfig cluster = config::load_run_file(local, {}).cluster;
  const std::string text =
      cluster_file_text(cluster, {"This machine, as `lockstep calibrate` measured it.", ""});
  const auto load = [&](const std::string& part) {
    config::load_run_file(local, {"cluster.file=" + write("part.toml", part).string()});
  };
  EXPECT_NO_THROW(load(text));
  int cuts = 0;
  for (size_t end = text.find('\n'); end + 1 < text.size(); end = text.find('\n', end + 1), ++cuts) {
    EXPECT_THROW(load(text.substr(0, end + 1)), UsageError) << text.substr(0, end + 1);
  }
  EXPECT_GT(cuts, 40);
}

}  // namespace
}  // namespace lockstep::cluster
