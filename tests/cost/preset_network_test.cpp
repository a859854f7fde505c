// What the presets' networks do to prices.
#include <gtest/gtest.h>

#include <algorithm>

#include "config/load.hpp"
#include "cost/transfer_run.hpp"

namespace lockstep::cost {
namespace {

using model::Axis;
using model::OpKind;
using test::collective_on;

config::ClusterConfig preset(const std::string& name, const std::vector<std::string>& overrides = {}) {
  const std::string text =
      "name = \"t\"\n[model]\npreset = \"llama3-8b\"\n[cluster]\npreset = \"" + name + "\"\ngpus = 1\n";
  const config::Examined examined = config::examine_run_text(text, "t.toml", overrides);
  EXPECT_EQ(config::to_string(examined.problems), "");
  return examined.run.cluster;
}

double slowest(const config::RunFile& run, Axis axis, OpKind kind, int64_t bytes) {
  TransferPrices prices = test::prices_of(run);
  const std::vector<double> seconds = prices.seconds(collective_on(axis, kind, bytes)).by_rank();
  return *std::max_element(seconds.begin(), seconds.end());
}

// 6,144 GPUs in one pod, in two as they are, and in sixteen; dp enters each pod once, so the links above it
// do not fill up: what differs is the way.
TEST(PresetNetwork, AnAllReduceAcrossPodsTakesLongerThanInOne) {
  for (const int64_t bytes : {int64_t{1024}, int64_t{1} << 20, int64_t{1} << 30}) {
    double before = 0;
    for (const int64_t pod : {6144, 3072, 384}) {
      config::RunFile run = test::run_on(preset("h100-24k"), 8, 16, 48);
      run.cluster.gpus_per_pod = pod;
      const double takes = slowest(run, Axis::dp_cp, OpKind::all_reduce, bytes);
      EXPECT_GT(takes, before * (1 + 1e-6)) << pod << " " << bytes;
      before = takes;
    }
  }
}

// Groups of two, one rank in each pod: every byte shares the links of 1:7 with all other groups'.
TEST(PresetNetwork, WhereEveryHopChangesThePodItsLinksAreSevenTimesSlower) {
  config::RunFile across = test::run_on(preset("h100-24k"), 8, 384, 2), inside = across;
  inside.cluster.gpus_per_pod = 6144;
  const int64_t bytes = int64_t{1} << 30;
  EXPECT_NEAR(slowest(across, Axis::dp_cp, OpKind::all_reduce, bytes) /
                  slowest(inside, Axis::dp_cp, OpKind::all_reduce, bytes),
              7, 0.05);
}

// The same two axes in two orders, on two pods: in the bad one each ring of dp goes to and fro between them.
TEST(PresetNetwork, ABadRankOrderPaysForTheLinksAbovePods) {
  config::RunFile good = test::run_on(preset("h100-24k"), 8, 16, 48), bad = good;
  bad.parallel.rank_order = "tp-dp-cp-pp";
  const int64_t bytes = int64_t{1} << 28;
  const auto message = [&](const config::RunFile& run) {
    TransferPrices prices = test::prices_of(run);
    const std::vector<double> seconds = prices.seconds({OpKind::send, Axis::pp, bytes, 8}).by_rank();
    return *std::max_element(seconds.begin(), seconds.end());
  };
  // Half of the pipeline further is the other pod for all ranks, or for none.
  EXPECT_GT(message(bad), 6.9 * message(good));
}

TEST(PresetNetwork, WhatNcclTakesWithoutAnyBytes) {
  // Eight H100: 6.6 us and 14 hops of 0.6 us in LL; across nodes 14 more of 5 us for a tree over 128.
  config::RunFile run = test::run_on(preset("h100-24k"), 8, 1, 128);
  EXPECT_NEAR(slowest(run, Axis::tp, OpKind::all_reduce, 24), 15e-6, 1e-8);
  run.cluster.switch_latency = 0;
  EXPECT_NEAR(slowest(run, Axis::dp_cp, OpKind::all_reduce, 24), 6.8e-6 + 14 * 5e-6, 1e-8);
}

// NVLink and NICs keep different shares of their bandwidths: 20.6 of 25 GB/s a link (NCCL, src/graph/topo.h).
TEST(PresetNetwork, NvlinkHasItsOwnShare) {
  config::RunFile run = test::run_on(preset("h100-24k"), 8, 1, 2);
  const int64_t bytes = int64_t{1} << 36;
  const double inside = slowest(run, Axis::tp, OpKind::all_gather, bytes),
               outside = slowest(run, Axis::dp_cp, OpKind::all_gather, bytes);
  EXPECT_NEAR(7.0 / 8 * bytes / inside / (18 * 20.6e9), 1, 1e-3);
  EXPECT_NEAR(0.5 * bytes / outside / (0.85 * 50e9), 1, 1e-3);
  run.cluster.nvlink_efficiency = 0;
  EXPECT_NEAR(7.0 / 8 * bytes / slowest(run, Axis::tp, OpKind::all_gather, bytes) / (0.85 * 450e9), 1, 1e-3);
}

// A share of the multiprocessors, a base latency and a way through switches: none is left at nothing.
TEST(PresetNetwork, NoPresetLeavesItsOverheadsOut) {
  for (const char* name : {"h100-24k", "h100-rails", "a100-selene", "b200-nvl8", "gb200-nvl72"}) {
    const config::ClusterConfig c = preset(name);
    EXPECT_EQ(c.nvlink_latency, 3.4e-6) << name;  // NCCL 2.28, src/graph/tuning.cc: Simple
    EXPECT_EQ(c.nic_latency, 14e-6) << name;
    EXPECT_EQ(c.message_overhead, 8.4e-6) << name;
    EXPECT_GT(c.switch_latency, 0) << name;
    const auto all = static_cast<double>(c.multiprocessors);
    EXPECT_NEAR(c.communication_slowdown, all / (all - 8) - 1, 5e-4) << name;
    const double ll = c.gpu[0] == 'A' ? 87.7e9 : c.gpu[0] == 'H' ? 141e9 : 282e9;
    EXPECT_EQ(c.low_latency_bandwidth, ll) << name;
  }
}

}  // namespace
}  // namespace lockstep::cost
