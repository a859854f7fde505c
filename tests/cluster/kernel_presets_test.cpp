// The devices and clusters that come with Lockstep, against their data sheets and against each other.
#include <gtest/gtest.h>
#include <rapidcheck.h>

#include <fstream>
#include <sstream>
#include <string>
#include <vector>

#include "cluster/hardware.hpp"
#include "config/load.hpp"
#include "config/presets.hpp"

namespace lockstep::cluster {
namespace {

// configs/tiny.toml on another cluster.
config::ClusterConfig load(const std::vector<std::string>& flags) {
  const std::string file = LOCKSTEP_SOURCE_DIR "/configs/tiny.toml";
  std::ifstream in(file);
  std::ostringstream text;
  text << in.rdbuf();
  const config::Examined examined = config::examine_run_text(text.str(), file, flags);
  EXPECT_EQ(config::to_string(examined.problems), "") << flags.back();
  return examined.run.cluster;
}
config::ClusterConfig device(const std::string& name) {
  return load({"cluster.preset=h100-24k", "cluster.device=" + name});
}
config::ClusterConfig cluster(const std::string& name) { return load({"cluster.preset=" + name}); }

// As the sheets print them: bf16 with sparsity, NVLink both directions together.
struct DataSheet {
  std::string name;
  double sparse_bf16_tflops, fp32_tflops, fp64_tflops, memory_gb, memory_tb_per_second, nvlink_gb_per_second;
  int64_t multiprocessors;
};
std::vector<DataSheet> data_sheets() {
  return {{"a100-80g", 624, 19.5, 19.5, 80, 2.039, 600, 108}, {"h100-80g", 1979, 67, 67, 80, 3.35, 900, 132},
          {"h100-96g", 1979, 67, 67, 96, 2.4, 900, 132},      {"h200", 1979, 67, 67, 141, 4.8, 900, 132},
          {"b200", 4500, 75, 37, 180, 7.7, 1800, 148},        {"gb200", 5000, 80, 40, 186, 8, 1800, 152}};
}

TEST(DevicePresets, AreTheirDataSheets) {
  ASSERT_EQ(data_sheets().size(), config::preset_names(config::PresetKind::device).size());
  for (const DataSheet& sheet : data_sheets()) {
    const config::ClusterConfig c = device(sheet.name);
    EXPECT_DOUBLE_EQ(c.peak_flops_bf16, sheet.sparse_bf16_tflops * 1e12 / 2) << sheet.name;
    EXPECT_DOUBLE_EQ(c.peak_flops_fp32, sheet.fp32_tflops * 1e12) << sheet.name;
    EXPECT_DOUBLE_EQ(c.peak_flops_fp64, sheet.fp64_tflops * 1e12) << sheet.name;
    EXPECT_DOUBLE_EQ(c.memory_bytes, sheet.memory_gb * 1e9) << sheet.name;
    EXPECT_DOUBLE_EQ(c.memory_bandwidth, sheet.memory_tb_per_second * 1e12) << sheet.name;
    EXPECT_DOUBLE_EQ(c.nvlink_bandwidth, sheet.nvlink_gb_per_second * 1e9 / 2) << sheet.name;
    EXPECT_EQ(c.multiprocessors, sheet.multiprocessors) << sheet.name;
  }
}

// NVIDIA's white papers: dense bf16 FLOPs of a multiprocessor a clock (1,024 and 2,048 multiply-adds), boost
// clock.
TEST(DevicePresets, PeaksFollowFromMultiprocessorsAndClock) {
  const config::ClusterConfig a100 = device("a100-80g"), h100 = device("h100-80g");
  EXPECT_NEAR(a100.peak_flops_bf16 / (static_cast<double>(a100.multiprocessors) * 2 * 1024 * 1.41e9), 1,
              1e-3);
  EXPECT_NEAR(h100.peak_flops_bf16 / (static_cast<double>(h100.multiprocessors) * 2 * 2048 * 1.83e9), 1,
              1e-3);
}

// Systems' data sheets give the sums.
TEST(DevicePresets, AddUpToTheirSystems) {
  const config::ClusterConfig rack = cluster("gb200-nvl72");
  ASSERT_EQ(rack.gpus_per_node, 72);  // 360 PFLOP/s with sparsity, 13.4 TB, 576 TB/s, NVLink 130 TB/s
  EXPECT_NEAR(72 * 2 * rack.peak_flops_bf16, 360e15, 1e12);
  EXPECT_NEAR(72 * rack.memory_bytes, 13.4e12, 0.05e12);
  EXPECT_NEAR(72 * rack.memory_bandwidth, 576e12, 1e9);
  EXPECT_NEAR(72 * 2 * rack.nvlink_bandwidth, 130e12, 0.5e12);
  const config::ClusterConfig hgx = cluster("b200-nvl8");
  ASSERT_EQ(hgx.gpus_per_node, 8);  // 36 PFLOP/s with sparsity, 1,440 GB, 62 TB/s, NVLink 14.4 TB/s
  EXPECT_NEAR(8 * 2 * hgx.peak_flops_bf16, 36e15, 1e12);
  EXPECT_NEAR(8 * hgx.memory_bytes, 1.44e12, 1e9);
  EXPECT_NEAR(8 * hgx.memory_bandwidth, 62e12, 0.5e12);
  EXPECT_NEAR(8 * 2 * hgx.nvlink_bandwidth, 14.4e12, 1e9);
}

TEST(DevicePresets, SmallKernelsReachLess) {
  for (const DataSheet& sheet : data_sheets()) {
    const config::ClusterConfig c = device(sheet.name);
    for (const config::Curve* curve : {&c.gemm_curve, &c.attention_curve, &c.memory_curve}) {
      ASSERT_GE(curve->size(), 3u) << sheet.name;
      for (size_t i = 1; i < curve->size(); ++i) {
        EXPECT_GT((*curve)[i].value, (*curve)[i - 1].value) << sheet.name;
      }
    }
    // Share of the peak of a square product, launch included.
    const Hardware h(c, config::Dtype::bf16);
    const auto share = [&](int64_t size) {
      const double elements = static_cast<double>(size * size);
      return 2 * elements * static_cast<double>(size) / c.peak_flops_bf16 /
             h.product_seconds(3 * 2 * elements, size, size, size);
    };
    EXPECT_LT(share(256), 0.05) << sheet.name;
    EXPECT_LT(share(1024), 0.4) << sheet.name;
    EXPECT_LT(share(1024), share(4096)) << sheet.name;
    EXPECT_LT(share(4096), share(16384)) << sheet.name;
    // What whole published steps reach, not a kernel alone.
    EXPECT_GT(share(16384), 0.4) << sheet.name;
    EXPECT_LT(share(16384), 0.8) << sheet.name;
  }
}

int64_t drawn_size() { return int64_t{1} << *rc::gen::inRange(4, 15) | *rc::gen::inRange(0, 4096); }

// Of two neighbours here the second is the better device throughout.
TEST(DevicePresets, ABetterDeviceIsNeverLonger) {
  const std::vector<std::string> order = {"a100-80g", "h100-96g", "h100-80g", "h200", "b200", "gb200"};
  std::vector<Hardware> devices;
  for (const std::string& name : order) devices.emplace_back(device(name), config::Dtype::bf16);
  EXPECT_TRUE(rc::check("kernels", [&] {
    const int64_t m = drawn_size(), n = drawn_size(), k = drawn_size();
    const double bytes = 2.0 * static_cast<double>(m * n + n * k + m * k);
    for (size_t i = 1; i < devices.size(); ++i) {
      const double slack = 1 + 1e-12;
      RC_ASSERT(devices[i].product_seconds(bytes, m, n, k) <=
                devices[i - 1].product_seconds(bytes, m, n, k) * slack);
      RC_ASSERT(devices[i].attention_seconds(1e3 * bytes, bytes) <=
                devices[i - 1].attention_seconds(1e3 * bytes, bytes) * slack);
      RC_ASSERT(devices[i].memory_seconds(bytes) <= devices[i - 1].memory_seconds(bytes) * slack);
    }
  }));
}

TEST(DevicePresets, TheH200IsAnH100WithAnotherMemory) {
  const config::ClusterConfig h100 = device("h100-80g");
  config::ClusterConfig h200 = device("h200");
  EXPECT_GT(h200.memory_bandwidth, h100.memory_bandwidth);
  h200.device = h100.device;
  h200.gpu = h100.gpu;
  h200.memory_bytes = h100.memory_bytes;
  h200.memory_bandwidth = h100.memory_bandwidth;
  h200.memory_curve = h100.memory_curve;
  EXPECT_EQ(h200, h100);
}

struct Fabric {
  std::string name, device;
  int64_t gpus, node, pod;
  double gigabits;  // per GPU out of its node
};

// From the descriptions that the files cite: nodes x GPUs, nodes of a scalable unit x GPUs.
TEST(ClusterPresets, AreTheirDescriptions) {
  const std::vector<Fabric> fabrics = {{"a100-selene", "a100-80g", 560 * 8, 8, 20 * 8, 200},
                                       {"h100-rails", "h100-80g", 64 * 32 * 8, 8, 32 * 8, 400},
                                       {"b200-nvl8", "b200", 64 * 32 * 8, 8, 32 * 8, 400},
                                       {"gb200-nvl72", "gb200", 128 * 72, 72, 8 * 72, 400}};
  for (const Fabric& fabric : fabrics) {
    const config::ClusterConfig c = cluster(fabric.name);
    EXPECT_EQ(c.device, fabric.device) << fabric.name;
    EXPECT_EQ(c.gpu, device(fabric.device).gpu) << fabric.name;
    EXPECT_EQ(c.max_gpus, fabric.gpus) << fabric.name;
    EXPECT_EQ(c.gpus_per_node, fabric.node) << fabric.name;
    EXPECT_EQ(c.gpus_per_pod, fabric.pod) << fabric.name;
    EXPECT_EQ(c.max_gpus % c.gpus_per_pod, 0) << fabric.name;
    EXPECT_EQ(c.nic_bandwidth, fabric.gigabits * 1e9 / 8) << fabric.name;
    // Rails with full bisection.
    EXPECT_EQ(c.topology, config::Topology::rails) << fabric.name;
    EXPECT_EQ(c.rack_oversubscription, 1) << fabric.name;
    EXPECT_EQ(c.pod_oversubscription, 1) << fabric.name;
    EXPECT_LT(c.nic_bandwidth, c.nvlink_bandwidth) << fabric.name;
  }
}

// A curve of the preset would undo the share that somebody set above it.
TEST(ClusterPresets, AShareSetAboveAPresetPutsItsCurveAside) {
  const config::ClusterConfig plain = cluster("h100-rails");
  const config::ClusterConfig c = load({"cluster.preset=h100-rails", "cluster.gemm_efficiency=0.5"});
  EXPECT_EQ(c.gemm_efficiency, 0.5);
  EXPECT_TRUE(c.gemm_curve.empty());
  EXPECT_EQ(c.attention_curve, plain.attention_curve);
  EXPECT_EQ(c.memory_curve, plain.memory_curve);
  // Beside a curve of the same rank it waits for the curve to be emptied.
  const config::ClusterConfig both = load({"cluster.preset=h100-rails", "cluster.gemm_efficiency=0.5",
                                           "cluster.gemm_curve=[{flops = 1e9, efficiency = 0.3}]"});
  ASSERT_EQ(both.gemm_curve.size(), 1u);
  EXPECT_EQ(both.gemm_curve[0].value, 0.3);
  EXPECT_TRUE(load({"cluster.preset=h100-rails", "cluster.gemm_curve=[]"}).gemm_curve.empty());
}

config::ClusterConfig load_text(const std::string& lines, const std::vector<std::string>& flags) {
  const std::string text =
      "name = \"t\"\n[model]\npreset = \"llama3-8b\"\n[cluster]\n" + lines + "gpus = 8\n[parallel]\ntp = 8\n";
  const config::Examined examined = config::examine_run_text(text, "t.toml", flags);
  EXPECT_EQ(config::to_string(examined.problems), "") << lines;
  return examined.run.cluster;
}

TEST(ClusterPresets, APresetInAFlagBringsItsDevice) {
  const std::string of_file =
      "preset = \"h100-rails\"\ndevice = \"h200\"\npeak_flops_bf16 = 1e12\ngpu = \"mine\"\n";
  const config::ClusterConfig file = load_text(of_file, {});
  EXPECT_EQ(file.gpu, "mine");
  EXPECT_EQ(file.peak_flops_bf16, 1e12);
  EXPECT_EQ(file.memory_bandwidth, 4.8e12);
  config::ClusterConfig flagged = load_text(of_file, {"cluster.preset=gb200-nvl72"});
  config::ClusterConfig expected = cluster("gb200-nvl72");
  EXPECT_EQ(flagged, expected);
  flagged = load_text(of_file, {"cluster.preset=gb200-nvl72", "cluster.gpu=\"other\""});
  expected.gpu = "other";
  EXPECT_EQ(flagged, expected);
  // This machine is none of the known devices: nothing of the file's is left over.
  EXPECT_EQ(load_text(of_file, {"cluster.preset=local"}), cluster("local"));
}

}  // namespace
}  // namespace lockstep::cluster
