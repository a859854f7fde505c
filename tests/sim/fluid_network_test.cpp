// The fluid simulator itself, against small cases worked out by hand.
#include <gtest/gtest.h>

#include "sim/drawn_layouts.hpp"
#include "sim/fluid_collective.hpp"

namespace lockstep::tests {
namespace {

constexpr double rate = 1e9;  // bytes/s of a NIC that data gets

// Ranks that have only their NICs.
config::RunFile ranks_on_nics(int64_t ranks) {
  config::RunFile run = sample_run(ranks, 1, 1, 1, 1);
  run.cluster = small_cluster(1, ranks);
  run.cluster.nic_bandwidth = rate;
  run.cluster.network_efficiency = 1;
  run.cluster.nic_latency = run.cluster.message_overhead = 0;
  run.cluster.collective_algorithm = config::CollectiveAlgorithm::ring;
  run.cluster.low_latency_protocols = false;
  return run;
}

cluster::Fabric fabric_of(const config::RunFile& run, std::vector<config::SlowRank> slow = {}) {
  return {run.cluster, static_cast<int>(run.parallel.world_size()), slow, 1};
}

double gather_seconds(const config::RunFile& run, int64_t bytes) {
  return fluid_seconds(run, parallel::Mesh(run), {model::OpKind::all_gather, model::Axis::tp, bytes})[0];
}

TEST(FluidNetwork, WhatIsLeftGoesToThoseThatCanUseIt) {
  const config::RunFile run = ranks_on_nics(3);
  const cluster::Fabric fabric = fabric_of(run, {{1, 4.0}});
  FluidNetwork network(fabric);
  double to_slow = 0, to_fast = 0;
  // The slow rank takes a quarter, so that the other flow has three; it is done first.
  network.start_flow(0, 1, 1e9, [&] { to_slow = network.now(); });
  network.start_flow(0, 2, 1.5e9, [&] { to_fast = network.now(); });
  network.run();
  EXPECT_NEAR(to_fast, 2, 1e-9);
  EXPECT_NEAR(to_slow, 4, 1e-9);
}

TEST(FluidNetwork, RatesChangeWhenAFlowBeginsOrEnds) {
  const config::RunFile run = ranks_on_nics(3);
  const cluster::Fabric fabric = fabric_of(run);
  FluidNetwork network(fabric);
  double first = 0, second = 0;
  network.start_flow(0, 1, 2e9, [&] { first = network.now(); });
  // One second alone, then half the rate until the second's 0.5e9 bytes have gone, a second later.
  network.at(1, [&] { network.start_flow(2, 1, 0.5e9, [&] { second = network.now(); }); });
  network.run();
  EXPECT_NEAR(second, 2, 1e-9);
  EXPECT_NEAR(first, 2.5, 1e-9);
}

TEST(FluidNetwork, ARingTakesItsRounds) {
  config::RunFile run = ranks_on_nics(3);
  run.cluster.nic_latency = 1e-3;
  run.cluster.message_overhead = 5e-3;
  EXPECT_NEAR(gather_seconds(run, 3'000'000), 5e-3 + 2 * (1e-3 + 1e-3), 1e-9);
}

// Two rounds over the slow rank's port, one after the other; what the fast hop saves is lost in waiting.
TEST(FluidNetwork, ARingGoesAtItsSlowestHop) {
  config::RunFile run = ranks_on_nics(3);
  run.simulate.slow_links = {{1, 2.0}};
  EXPECT_NEAR(gather_seconds(run, 3'000'000), 2 * 2e-3, 1e-9);
}

// Nobody waits for a round: chunks that have come early are sent on while another hop's latency passes.
TEST(FluidNetwork, LatencyOfARingPassesMeanwhile) {
  config::RunFile run = ranks_on_nics(4);
  run.cluster.gpus_per_node = run.cluster.gpus_per_rack = 2;
  run.cluster.nvlink_bandwidth = 1e15;
  run.cluster.nvlink_latency = 0;
  run.cluster.nic_latency = 1e-4;
  // Two channels of half a chunk; hops NVLink, NIC, NVLink, NIC. The NIC is busy all the time after its first
  // latency: three half chunks of 0.5 ms.
  EXPECT_NEAR(gather_seconds(run, 4'000'000), 1e-4 + 3 * 0.5e-3, 1e-8);
}

}  // namespace
}  // namespace lockstep::tests
