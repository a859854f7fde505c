#include "cluster/network.hpp"

#include <gtest/gtest.h>

#include <algorithm>

namespace lockstep::cluster {
namespace {

// As the h100-24k preset, with round latencies and no protocol loss.
config::ClusterConfig h100_like() {
  config::ClusterConfig c;
  c.gpus_per_node = 8;
  c.gpus_per_rack = 16;
  c.gpus_per_pod = 3072;
  c.nvlink_bandwidth = 450e9;
  c.nvlink_latency = 1e-6;
  c.nic_bandwidth = 50e9;
  c.nic_latency = 5e-6;
  c.network_efficiency = 1;
  c.pod_oversubscription = 7;
  return c;
}

double bandwidth(const Path& path) { return 1 / path.seconds_per_byte; }

std::vector<Path> ring_paths(const Network& net, const RankAxis& axis) {
  return net.ring_paths(axis.world, [&](int rank) {
    std::vector<int> group;
    for (int i = 0; i < axis.size; ++i) group.push_back(axis.at(rank, i));
    return group;
  });
}

TEST(Network, WhereRanksStand) {
  const Network net(h100_like());
  EXPECT_EQ(net.reach(3, 3), Reach::self);
  EXPECT_EQ(net.reach(0, 7), Reach::node);
  EXPECT_EQ(net.reach(7, 8), Reach::pod);
  EXPECT_EQ(net.reach(0, 3071), Reach::pod);
  EXPECT_EQ(net.reach(3071, 3072), Reach::cluster);
}

TEST(Network, AloneEachPathHasItsLinksBandwidth) {
  const Network net(h100_like());
  const auto alone = [&](int from, int to) { return net.concurrent_paths({{from, to}}).front(); };
  EXPECT_EQ(alone(5, 5), (Path{0, 0}));
  EXPECT_NEAR(bandwidth(alone(0, 1)), 450e9, 1);
  EXPECT_NEAR(bandwidth(alone(0, 8)), 50e9, 1);
  EXPECT_NEAR(bandwidth(alone(0, 3072)), 50e9, 1);  // one flow does not fill a pod's uplink
  EXPECT_EQ(alone(0, 1).latency, 1e-6);
  EXPECT_EQ(alone(0, 8).latency, 5e-6);
}

TEST(Network, FlowsOfOneGpuShareItsPort) {
  const Network net(h100_like());
  const auto out = net.concurrent_paths({{0, 8}, {0, 16}, {1, 24}});
  EXPECT_NEAR(bandwidth(out[0]), 25e9, 1);
  EXPECT_NEAR(bandwidth(out[1]), 25e9, 1);
  EXPECT_NEAR(bandwidth(out[2]), 50e9, 1);  // its own NIC
  const auto in = net.concurrent_paths({{0, 2}, {1, 2}, {3, 2}});
  for (const Path& path : in) EXPECT_NEAR(bandwidth(path), 150e9, 1);
  // Both directions of a link go at once.
  for (const Path& path : net.concurrent_paths({{0, 8}, {8, 0}})) EXPECT_NEAR(bandwidth(path), 50e9, 1);
}

TEST(Network, ProtocolLossAppliesEverywhere) {
  config::ClusterConfig c = h100_like();
  c.network_efficiency = 0.8;
  EXPECT_NEAR(bandwidth(Network(c).concurrent_paths({{0, 1}}).front()), 360e9, 1);
  EXPECT_NEAR(bandwidth(Network(c).concurrent_paths({{0, 8}}).front()), 40e9, 1);
}

TEST(Network, BetweenPodsAllAtOnceGetTheOversubscribedShare) {
  const Network net(h100_like());
  // Two pods, each rank's partner in the other.
  const RankAxis across{6144, 3072, 2};
  for (const Path& path : net.shift_paths(across, 1)) EXPECT_NEAR(bandwidth(path), 50e9 / 7, 1);
  // The uplink has room for a seventh of the GPUs at full speed.
  std::vector<Flow> some;
  for (int i = 0; i < 400; ++i) some.push_back({i, 3072 + i});
  EXPECT_NEAR(bandwidth(net.concurrent_paths(some).front()), 50e9, 1);
}

TEST(Network, RingsThatLeaveTheNodeUseTheNic) {
  const Network net(h100_like());
  const auto tp8 = ring_paths(net, {16, 1, 8});
  for (const Path& path : tp8) EXPECT_EQ(path, (Path{1e-6, 1 / 450e9}));
  const auto tp16 = ring_paths(net, {16, 1, 16});
  for (const Path& path : tp16) EXPECT_EQ(path, (Path{5e-6, 1 / 50e9}));
  // Groups of 3 on nodes of 8: some fit, some straddle.
  const auto tp3 = ring_paths(net, {24, 1, 3});
  EXPECT_EQ(tp3[0].latency, 1e-6);
  EXPECT_EQ(tp3[6].latency, 5e-6);
  EXPECT_EQ(tp3[8].latency, 5e-6);
  EXPECT_EQ(tp3[9].latency, 1e-6);
}

TEST(Network, EightRanksOfANodeHaveANicEach) {
  const Network net(h100_like());
  // Data parallel over 16 nodes: eight rings pass each node at once, each at the full NIC.
  for (const Path& path : ring_paths(net, {128, 8, 16})) EXPECT_EQ(path, (Path{5e-6, 1 / 50e9}));
}

TEST(Network, ABadOrderCrowdsTheUplink) {
  const Network net(h100_like());
  // 16,384 ranks, groups of 128: along the outermost axis a ring enters each pod once ...
  const auto good = ring_paths(net, {16384, 128, 128});
  EXPECT_NEAR(bandwidth(good[0]), 50e9, 1);
  // ... but a ring whose every hop changes the pod leaves each GPU a seventh (here nearly all pods are full).
  const auto bad = ring_paths(net, {24576, 3072, 8});
  EXPECT_NEAR(bandwidth(bad[0]), 50e9 / 7, 1);
}

TEST(Network, AGroupOfOneNeedsNoNetwork) {
  for (const Path& path : ring_paths(Network(h100_like()), {8, 1, 1})) EXPECT_EQ(path, (Path{0, 0}));
}

TEST(Network, GroupsNeedNotBeEvenlySpacedNorEquallyLarge) {
  const Network net(h100_like());
  const std::vector<std::vector<int>> groups = {{0, 1, 8, 9}, {2}, {3, 4, 5}, {6, 7}, {10, 11}};
  const auto paths = net.ring_paths(12, [&](int rank) {
    for (const auto& group : groups) {
      if (std::find(group.begin(), group.end(), rank) != group.end()) return group;
    }
    return std::vector<int>{};
  });
  EXPECT_EQ(paths[0], (Path{5e-6, 1 / 50e9}));  // two of its four hops leave the node
  EXPECT_EQ(paths[9], paths[0]);
  EXPECT_EQ(paths[2], (Path{0, 0}));
  for (const size_t rank : {3u, 4u, 5u, 6u, 7u, 10u}) EXPECT_EQ(paths[rank], (Path{1e-6, 1 / 450e9}));
}

}  // namespace
}  // namespace lockstep::cluster
