// Prices against closed forms of algorithm, links and sharing.
#include "cost/transfer_prices.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>

#include "cost/transfer_run.hpp"

namespace lockstep::cost {
namespace {

using model::Axis;
using model::OpKind;
using test::collective_on;
using test::prices_of;
using test::round_cluster;
using test::run_on;

constexpr int64_t large = 1 << 30;

double slowest(const std::vector<double>& seconds) {
  return *std::max_element(seconds.begin(), seconds.end());
}

TEST(TransferPrices, RingInsideANode) {
  TransferPrices prices = prices_of(run_on(round_cluster(), 8, 1, 2));
  const auto& gather = prices.seconds(collective_on(Axis::tp, OpKind::all_gather, large));
  ASSERT_EQ(gather.size(), 16u);
  for (const double s : gather.by_rank()) EXPECT_NEAR(s, 7 * 1e-6 + 7.0 / 8 * large / 400e9, 1e-12);
  EXPECT_EQ(prices.seconds(collective_on(Axis::tp, OpKind::reduce_scatter, large)).by_rank(),
            gather.by_rank());
  const auto& reduce = prices.seconds(collective_on(Axis::tp, OpKind::all_reduce, large));
  for (const double s : reduce.by_rank()) EXPECT_NEAR(s, 2 * gather[0], 1e-12);
  EXPECT_EQ(prices.choice(collective_on(Axis::tp, OpKind::all_reduce, large)).algorithm, "ring");
}

// Eight rings leave each node at eight NICs: with one ring the NIC of one rank would carry it all.
TEST(TransferPrices, ARingOverNodesUsesAllNics) {
  TransferPrices prices = prices_of(run_on(round_cluster(), 1, 1, 16));
  const double s = prices.seconds(collective_on(Axis::dp_cp, OpKind::all_gather, large))[0];
  const double latency = 15 * (14 * 1e-6 + 2 * 5e-6) / 16;  // of a chunk on its way around
  EXPECT_NEAR(s, latency + 15.0 / 16 / 8 * large / 50e9, 1e-12);
}

TEST(TransferPrices, EightGroupsOfANodeHaveANicEach) {
  TransferPrices prices = prices_of(run_on(round_cluster(), 8, 1, 16));
  for (const double s : prices.seconds(collective_on(Axis::dp_cp, OpKind::all_gather, large)).by_rank()) {
    EXPECT_NEAR(s, 15 * 5e-6 + 15.0 / 16 * large / 50e9, 1e-12);
  }
}

TEST(TransferPrices, APodsUplinkIsCrowdedOneToSeven) {
  // Groups of two, each with one rank in either pod.
  TransferPrices prices = prices_of(run_on(round_cluster(), 128, 1, 2));
  for (const double s : prices.seconds(collective_on(Axis::dp_cp, OpKind::all_gather, large)).by_rank()) {
    EXPECT_NEAR(s, 5e-6 + 0.5 * large / (50e9 / 7), 1e-12);
  }
  config::ClusterConfig flat = round_cluster();
  flat.pod_oversubscription = 1;
  TransferPrices free = prices_of(run_on(flat, 128, 1, 2));
  EXPECT_NEAR(free.seconds(collective_on(Axis::dp_cp, OpKind::all_gather, large))[0],
              5e-6 + 0.5 * large / 50e9, 1e-12);
}

TEST(TransferPrices, MessagesGoStageToStage) {
  TransferPrices prices = prices_of(run_on(round_cluster(), 8, 4, 1));
  const Transfer send{OpKind::send, Axis::pp, 1 << 20, 1};
  for (const double s : prices.seconds(send).by_rank()) EXPECT_NEAR(s, 5e-6 + (1 << 20) / 50e9, 1e-15);
  EXPECT_EQ(prices.choice(send).algorithm, "message");
  for (const double s : prices.seconds({OpKind::send, Axis::pp, 1 << 20, 4}).by_rank()) EXPECT_EQ(s, 0);
  EXPECT_EQ(prices.seconds({OpKind::send, Axis::pp, 1 << 20, -1}).by_rank(), prices.seconds(send).by_rank());
  EXPECT_THROW(prices.seconds({OpKind::gemm, Axis::pp, 1, 0}), std::invalid_argument);
}

TEST(TransferPrices, ARankAloneOnItsAxisWaitsForNobody) {
  config::RunFile run = run_on(round_cluster(), 1, 4, 2);
  TransferPrices prices = prices_of(run);
  for (const double s : prices.seconds(collective_on(Axis::tp, OpKind::all_reduce, large)).by_rank())
    EXPECT_EQ(s, 0);
  const auto& ends = prices.seconds(collective_on(Axis::pp_ends, OpKind::all_reduce, large));
  const parallel::Mesh mesh(run);
  for (int r = 0; r < 8; ++r) {
    const int stage = mesh.coordinates(r).pp;
    EXPECT_EQ(ends[static_cast<size_t>(r)] > 0, stage == 0 || stage == 3) << r;
  }
}

TEST(TransferPrices, TwoAxesOnOneNicShareIt) {
  // tp and dp both leave the nodes: 16 ranks of tp over two nodes, dp beyond.
  TransferPrices prices = prices_of(run_on(round_cluster(), 16, 2, 2));
  const Transfer gradients = collective_on(Axis::dp_cp, OpKind::reduce_scatter, large);
  const Transfer message{OpKind::send, Axis::pp, large, 1};
  const double alone = prices.seconds(gradients)[0];
  const double beside = prices.seconds_beside(gradients, {message})[0];
  const double latency = 5e-6;
  EXPECT_NEAR((beside - latency) / (alone - latency), 2, 1e-9);
  // What both get is what the NIC has.
  const double other = prices.seconds_beside(message, {gradients})[0];
  const double rate = 0.5 * large / (beside - latency) + large / (other - latency);
  EXPECT_NEAR(rate, 50e9, 1);
  // Of three each has a third, in whatever order they are named.
  const Transfer back{OpKind::send, Axis::pp, large, -1};
  const double third = prices.seconds_beside(gradients, {message, back})[0];
  EXPECT_NEAR((third - latency) / (alone - latency), 3, 1e-9);
  EXPECT_EQ(prices.seconds_beside(gradients, {back, message})[0], third);
  // NVLink's traffic leaves the NIC alone.
  TransferPrices inside = prices_of(run_on(round_cluster(), 8, 2, 2));
  EXPECT_EQ(inside.seconds_beside(gradients, {collective_on(Axis::tp, OpKind::all_gather, large)}).by_rank(),
            inside.seconds(gradients).by_rank());
}

TEST(TransferPrices, TreeForSmallMessagesOfManyRanksRingForLargeOnes) {
  TransferPrices prices = prices_of(run_on(round_cluster(), 8, 1, 128));
  EXPECT_EQ(prices.choice(collective_on(Axis::dp_cp, OpKind::all_reduce, 1024)).algorithm, "tree");
  EXPECT_EQ(prices.choice(collective_on(Axis::dp_cp, OpKind::all_reduce, 8LL << 30)).algorithm, "ring");
  EXPECT_EQ(prices.choice(collective_on(Axis::dp_cp, OpKind::all_gather, 1024)).algorithm, "ring");
  // 2 x 7 hops instead of 2 x 127.
  const double s = slowest(prices.seconds(collective_on(Axis::dp_cp, OpKind::all_reduce, 16)).by_rank());
  EXPECT_NEAR(s, 14 * 5e-6, 1e-8);
}

// Software that hides a share of tensor-parallel collectives moves them no faster; some gets less of the
// network for gradients.
TEST(TransferPrices, OfSoftware) {
  config::RunFile run = tests::sample_run(2, 2, 4, 1, 1);
  run.cluster.gpus_per_node = run.cluster.gpus_per_rack = 2;
  run.cluster.gpus_per_pod = 16;
  run.cluster.nvlink_bandwidth = 100e9;
  run.cluster.nic_bandwidth = 10e9;
  run.cluster.network_efficiency = 0.8;
  run.cluster.low_latency_protocols = false;
  const Transfer tp{model::OpKind::all_gather, model::Axis::tp, 1 << 20},
      dp{model::OpKind::reduce_scatter, model::Axis::dp_cp, 1 << 20},
      ends{model::OpKind::all_reduce, model::Axis::pp_ends, 1 << 20},
      message{model::OpKind::send, model::Axis::pp, 1 << 20, 1};
  const auto seconds = [&](const Transfer& transfer) {
    const parallel::Mesh mesh(run);
    return TransferPrices(run, mesh).seconds(transfer)[0];
  };
  const auto ratios = [&](double tensor, double gradients, auto change) {
    const double before[] = {seconds(tp), seconds(dp), seconds(ends), seconds(message)};
    change();
    EXPECT_NEAR(seconds(tp) / before[0], tensor, 1e-12);
    EXPECT_NEAR(seconds(dp) / before[1], gradients, 1e-12);
    EXPECT_NEAR(seconds(ends) / before[2], gradients, 1e-12);
    EXPECT_NEAR(seconds(message) / before[3], 1, 1e-12);
  };
  ratios(1, 1, [&] { run.software.tensor_parallel_overlap = 0.25; });
  ratios(1, 4, [&] { run.software.dp_network_efficiency = 0.2; });
}

}  // namespace
}  // namespace lockstep::cost
