// Where figures come from: run file, flags, presets, devices and cluster files, the strongest first; and what
// is said of figures that come to nothing.
#include <gtest/gtest.h>
#include <unistd.h>

#include <fstream>

#include "config/run_file.hpp"
#include "support.hpp"

namespace lockstep::config {
namespace {

const std::string run_text = "name = \"x\"\n[model]\npreset = \"llama3-8b\"\n[cluster]\ngpus = 1\n";

class Sources : public testing::Test {
 protected:
  std::string cluster_file(const std::string& text) const {
    const std::string path = testing::TempDir() + "lockstep-sources" + std::to_string(::getpid()) + ".toml";
    std::ofstream(path) << text;
    return path;
  }
  static ClusterConfig cluster(const std::string& keys, const std::vector<std::string>& flags = {}) {
    const Examined examined = examine_run_text(run_text + keys, "t.toml", flags);
    EXPECT_EQ(to_string(examined.problems), "");
    return examined.run.cluster;
  }
  static std::vector<std::string> notes(const std::string& keys, const std::vector<std::string>& flags = {}) {
    const Examined examined = examine_run_text(run_text + "preset = \"local\"\n" + keys, "t.toml", flags);
    EXPECT_EQ(to_string(examined.problems), "");
    return examined.run.origin.notes;
  }
};

TEST_F(Sources, ADeviceBesideAPresetWinsOverIt) {
  EXPECT_EQ(cluster("preset = \"local\"\n").gpu, "CPU-worker");
  const ClusterConfig beside = cluster("preset = \"local\"\ndevice = \"h200\"\n");
  EXPECT_EQ(beside.gpu, "H200-141G-SXM");
  EXPECT_EQ(beside.gpus_per_node, 256) << "the preset's, which the device does not name";
  EXPECT_EQ(beside, cluster("preset = \"local\"\n", {"cluster.device=h200"}));
  EXPECT_EQ(cluster("preset = \"h100-24k\"\ndevice = \"h200\"\n").gpu, "H200-141G-SXM");
  // Keys beside it win over it; a preset in a flag wins over it.
  EXPECT_EQ(cluster("preset = \"local\"\ndevice = \"h200\"\nmemory_bytes = 5e9\n").memory_bytes, 5e9);
  EXPECT_EQ(cluster("device = \"h200\"\npreset = \"local\"\n", {"cluster.preset=h100-24k"}).gpu,
            "H100-80G-SXM");
}

TEST_F(Sources, ADeviceInAClusterFileWinsOverThePreset) {
  const std::string file = cluster_file("[cluster]\ndevice = \"gb200\"\nmemory_bytes = 7e9\n");
  const std::string keys = "preset = \"local\"\npeak_flops_bf16 = 1e12\n";
  const ClusterConfig flag = cluster(keys, {"cluster.file=" + file});
  EXPECT_EQ(flag.gpu, "GB200-186G");
  EXPECT_EQ(flag.memory_bytes, 7e9);
  EXPECT_GT(flag.peak_flops_bf16, 1e15) << "a file in a flag wins over the run file, its device too";
  const ClusterConfig in_file = cluster(keys + "file = \"" + file + "\"\n");
  EXPECT_EQ(in_file.gpu, "GB200-186G");
  EXPECT_EQ(in_file.peak_flops_bf16, 1e12) << "the run file's own key";
  EXPECT_EQ(cluster("", {"cluster.preset=local", "cluster.file=" + file}).memory_bytes, 7e9)
      << "what is beside a preset wins over it";
}

TEST_F(Sources, AClusterFileWithoutFiguresOrCutIsRefused) {
  const auto problem = [&](const std::string& text) {
    return to_string(examine_tiny({"cluster.file=" + cluster_file(text)}).problems);
  };
  for (const char* text : {"", "# nothing\n", "[cluster]\n"}) {
    EXPECT_NE(problem(text).find("holds no figure"), std::string::npos) << problem(text);
  }
  const std::string begin = "# This machine, as `lockstep calibrate` measured it.\n[cluster]\n";
  EXPECT_NE(problem(begin + "launch_seconds = 1e-6\n").find("it was cut"), std::string::npos);
  EXPECT_EQ(problem(begin + "launch_seconds = 1e-6\n# End: this file is whole.\n"), "");
  EXPECT_EQ(problem("[cluster]\nlaunch_seconds = 1e-6\n"), "") << "by hand";
  EXPECT_NE(problem("[cluster]\nnic_bandwith = 1e9\n").find("did you mean cluster.nic_bandwidth?"),
            std::string::npos);
}

TEST_F(Sources, WhatJitterAloneLetsHappenIsNotedWithoutIt) {
  const std::vector<std::string> keys = {"simulate.throttled_nodes=0.1", "simulate.throttle_factor=2",
                                         "simulate.tail_probability=0.5", "simulate.daily_heat=0.5"};
  EXPECT_TRUE(notes("", keys).empty());
  std::vector<std::string> without = keys;
  without.push_back("simulate.jitter=false");
  EXPECT_EQ(notes("", without), std::vector<std::string>{
                                    "without effect, for simulate.jitter = false: simulate.tail_probability, "
                                    "simulate.throttled_nodes, simulate.throttle_factor"});
  EXPECT_TRUE(notes("", {"simulate.jitter=false"}).empty());
  EXPECT_TRUE(notes("", {"simulate.jitter=false", "simulate.tail_probability=1e-6"}).empty())
      << "the default, as a resolved file has it";
}

TEST_F(Sources, HalfAnImperfectionIsNoted) {
  for (const auto& [key, needs] : std::vector<std::pair<std::string, std::string>>{
           {"throttled_nodes=0.5", "throttle_factor"},
           {"throttle_factor=2", "throttled_nodes"},
           {"retransmit_probability=0.5", "retransmit_seconds"},
           {"retransmit_seconds=1", "retransmit_probability"},
           {"garbage_collection_interval=5", "garbage_collection_seconds"}}) {
    const std::vector<std::string> said = notes("", {"simulate." + key});
    ASSERT_EQ(said.size(), 1u) << key;
    EXPECT_NE(said[0].find("needs simulate." + needs + " above"), std::string::npos) << said[0];
    EXPECT_NE(said[0].find("--set simulate." + key), std::string::npos) << said[0];
  }
}

TEST_F(Sources, AShareBesideItsCurveIsNoted) {
  const std::string curve = "gemm_curve = [{ flops = 1e6, efficiency = 0.5 }]\n";
  const std::vector<std::string> said = notes(curve + "gemm_efficiency = 0.3\n");
  ASSERT_EQ(said.size(), 1u);
  EXPECT_NE(said[0].find("cluster.gemm_efficiency = 0.3 (t.toml:"), std::string::npos) << said[0];
  EXPECT_TRUE(notes(curve + "gemm_efficiency = 0.5\n").empty()) << "the curve's end, as `calibrate` writes";
  EXPECT_TRUE(notes(curve, {"cluster.gemm_efficiency=0.3"}).empty()) << "the flag puts the curve aside";
}

// A share that is set above a file's curves puts all of them aside that take its place.
TEST_F(Sources, AShareInAFlagPutsAllItsCurvesAside) {
  const std::string at_flops = " = [{ flops = 1e6, efficiency = 0.5 }]\n";
  const std::string at_bytes = " = [{ bytes = 1e6, efficiency = 0.5 }]\n";
  const std::string keys = "preset = \"local\"\ngemm_curve" + at_flops + "weight_gradient_curve" + at_flops +
                           "memory_curve" + at_bytes + "row_curve" + at_bytes + "exponential_curve" +
                           at_bytes;
  const ClusterConfig all = cluster(keys);
  EXPECT_FALSE(all.weight_gradient_curve.empty() || all.row_curve.empty() || all.exponential_curve.empty());
  const ClusterConfig gemm = cluster(keys, {"cluster.gemm_efficiency=0.9"});
  EXPECT_TRUE(gemm.gemm_curve.empty() && gemm.weight_gradient_curve.empty());
  EXPECT_FALSE(gemm.row_curve.empty());
  const ClusterConfig memory = cluster(keys, {"cluster.memory_efficiency=0.9"});
  EXPECT_TRUE(memory.memory_curve.empty() && memory.row_curve.empty() && memory.exponential_curve.empty());
  EXPECT_FALSE(memory.weight_gradient_curve.empty());
}

TEST_F(Sources, CurvesOfAnotherTypeAreNoted) {
  const std::string measured =
      "measured_dtype = \"fp32\"\ngemm_curve = [{ flops = 1e6, efficiency = 0.5 }]\n";
  const std::vector<std::string> said = notes(measured);
  ASSERT_EQ(said.size(), 1u);
  EXPECT_NE(said[0].find("measured in fp32 (t.toml:"), std::string::npos) << said[0];
  EXPECT_NE(said[0].find("calibrate --dtype bf16"), std::string::npos) << said[0];
  EXPECT_TRUE(notes(measured, {"train.dtype=fp32"}).empty());
  EXPECT_TRUE(notes(measured, {"cluster.device=h200"}).empty()) << "whose curves these are not";
}

TEST_F(Sources, AClusterFileThatAFlagReplacesIsNoted) {
  const std::string file = cluster_file("[cluster]\nlaunch_seconds = 1e-6\n");
  const std::vector<std::string> said = notes("file = \"other.toml\"\n", {"cluster.file=" + file});
  ASSERT_EQ(said.size(), 1u);
  EXPECT_NE(said[0].find("cluster.file = \"other.toml\" (t.toml:7) is not read"), std::string::npos)
      << said[0];
}

SoftwareConfig software(const std::string& keys, const std::vector<std::string>& flags = {}) {
  const Examined examined = examine_run_text(run_text + "preset = \"local\"\n" + keys, "t.toml", flags);
  EXPECT_EQ(to_string(examined.problems), "");
  return examined.run.software;
}

TEST_F(Sources, SoftwareComesFromPresetFileKeysAndFlags) {
  EXPECT_EQ(software(""), SoftwareConfig{});
  const std::string preset = "[software]\npreset = \"megatron-2021\"\n";
  EXPECT_EQ(software(preset).attention, AttentionKernel::scores);
  EXPECT_FALSE(software(preset).overlap_gradients);
  EXPECT_EQ(software(preset + "attention = \"flash\"\n").attention, AttentionKernel::flash);
  EXPECT_TRUE(software(preset + "attention = \"flash\"\n").dropout) << "the preset's";
  EXPECT_EQ(software(preset, {"software.preset=llama3"}).attention, AttentionKernel::flash);

  const std::string file = cluster_file("[software]\nhost_seconds_per_launch = 1e-5\ndropout = false\n");
  const SoftwareConfig beside = software(preset + "file = \"" + file + "\"\n");
  EXPECT_EQ(beside.host_seconds_per_launch, 1e-5);
  EXPECT_FALSE(beside.dropout) << "a file wins over a preset beside it";
  EXPECT_EQ(beside.attention, AttentionKernel::scores);
  EXPECT_EQ(beside.file, "") << "its keys have been taken";
  EXPECT_EQ(software("[software]\ndropout = true\n", {"software.file=" + file}).dropout, false);
}

TEST_F(Sources, ASoftwareFileHoldsSoftwareAlone) {
  const auto problems = [&](const std::string& text) {
    return to_string(examine_tiny({"software.file=" + cluster_file(text)}).problems);
  };
  EXPECT_NE(problems("[cluster]\ngpus = 3\n").find("a software file is a [software] table"),
            std::string::npos);
  EXPECT_NE(problems("[software]\ndropuot = true\n").find("did you mean software.dropout"),
            std::string::npos);
  EXPECT_NE(problems("[software]\ndropout = true\n[model]\nlayers = 3\n").find("nothing else"),
            std::string::npos);
}

}  // namespace
}  // namespace lockstep::config
