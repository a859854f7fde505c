// Choices and times against NCCL's tuning model, written down again from NCCL 2.28's src/graph/tuning.cc:
// microseconds and GB/s, by its own formulas and for its own inputs (ranks, nodes, bandwidth of its rings).
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cmath>

#include "cost/transfer_run.hpp"

namespace lockstep::cost {
namespace {

using model::Axis;
using model::OpKind;
using test::collective_on;
using test::prices_of;
using test::run_on;

constexpr std::array<const char*, 3> protocol_names = {"LL", "LL128", "Simple"};
enum { ll, ll128, simple };

struct Communicator {
  int ranks, nodes;
  double bandwidth;  // of all channels
};

double ring_time(const Communicator& c, bool all_reduce, int protocol, double bytes) {
  const double base[] = {6.6, 14.0, 8.4}, nvlink[] = {0.6, 1.9, 3.4}, net[] = {2.7, 4.0, 14.0};
  const double tree_net[] = {5.0, 8.5, 14.0}, ll_max[] = {141.0, 39.0, 20.4};
  double bus = c.bandwidth;
  if (protocol == ll) bus = std::min(ll_max[std::min(c.nodes, 3) - 1], bus * .5);
  if (protocol == ll128) bus *= 0.92;
  const int steps = (all_reduce ? 2 : 1) * (c.ranks - 1);
  const int inter_steps = (all_reduce ? 2 : 1) * (c.nodes - 1);
  const double overhead = c.nodes > 1 ? (protocol == simple ? 3.0 : 1.0) : 0;
  const double intra = std::max(nvlink[protocol], overhead);
  const double inter = c.ranks == c.nodes ? tree_net[protocol] : net[protocol];
  double latency = base[protocol] + (steps - inter_steps) * intra + inter_steps * inter;
  const double channels = 2.0 * c.ranks / c.nodes;
  if (protocol == simple && c.nodes > 1 && all_reduce && bytes / (channels * c.ranks) >= 64) latency *= 1.4;
  return latency + bytes / (1000 * bus * c.ranks / steps);
}

double tree_time(const Communicator& c, int protocol, double bytes) {
  const double base[] = {6.8, 14.0, 8.4}, nvlink[] = {0.6, 1.25, 4.0}, net[] = {5.0, 8.5, 14.0};
  const double ll_max[] = {141.0, 39.0, 20.4};
  const double correction[3][23] = {
      {1.0, 1.0, 1.0, 1.0, .9, .8, .7, .7, .7, .7, .6, .5, .4, .4, .5, .6, .7, .8, .9, 1.0, 1.0, 1.0, 1.0},
      {1.0, 1.0, 1.0, 1.0, 1.0, .9, .8, .8, .8, .7, .6, .6, .6, .6, .6, .6, .8, .9, .9, .9, .9, 1.0, 1.0},
      {.9, .9, .9, .9, .9, .9, .9, .8, .7, .6, .6, .5, .5, .5, .5, .6, .7, .8, .7, .7, .8, .9, .9}};
  double bus = c.bandwidth * .92;
  if (protocol == ll) bus = std::min(bus / 3.8, ll_max[std::min(c.nodes, 3) - 1]);
  if (protocol == ll128) bus *= c.nodes == 1 ? 7.0 / 9.0 : 120.0 / 128.0;
  const int size = static_cast<int>(std::floor(std::log2(bytes / 64)));
  double bandwidth = bus * .5;
  if (size >= 0 && size < 23) bandwidth *= correction[protocol][size];
  const double hops =
      (c.ranks / c.nodes - 1) * nvlink[protocol] + std::floor(std::log2(c.nodes)) * net[protocol];
  return base[protocol] + 2 * hops + bytes / (1000 * bandwidth);
}

// An axis whose groups are such communicators, on a cluster with NCCL's own latencies.
struct Case {
  const char* what;
  Communicator communicator;
  int64_t tp, dp;
};
constexpr std::array<Case, 6> cases = {{{"a node of 8", {8, 1, 400}, 1, 8},
                                        {"4 of a node", {4, 1, 400}, 2, 4},
                                        {"2 nodes of 8", {16, 2, 400}, 1, 16},
                                        {"16 nodes of 8", {128, 16, 400}, 1, 128},
                                        {"16 nodes, one rank each", {16, 16, 50}, 8, 16},
                                        {"128 nodes, one rank each", {128, 128, 50}, 8, 128}}};

config::RunFile run_of(const Case& c) {
  config::ClusterConfig cluster = test::round_cluster();
  cluster.gpus_per_pod = 1 << 20;
  cluster.nvlink_latency = 3.4e-6;
  cluster.nic_latency = 14e-6;
  cluster.message_overhead = 8.4e-6;
  cluster.low_latency_protocols = true;
  cluster.low_latency_bandwidth = 141e9;
  return run_on(cluster, c.tp, 1, c.dp);
}

struct Best {
  std::string algorithm, protocol;
  double microseconds = 0;
};
double nccl_time(const Case& c, bool all_reduce, const std::string& algorithm, int protocol, double bytes) {
  return algorithm == "tree" ? tree_time(c.communicator, protocol, bytes)
                             : ring_time(c.communicator, all_reduce, protocol, bytes);
}
Best nccl_choice(const Case& c, bool all_reduce, double bytes) {
  Best best;
  for (const char* algorithm : {"tree", "ring"}) {
    if (!all_reduce && algorithm[0] == 't') continue;
    for (const int protocol : {ll, ll128, simple}) {
      const double takes = nccl_time(c, all_reduce, algorithm, protocol, bytes);
      if (best.microseconds != 0 && takes >= best.microseconds) continue;
      best = {algorithm, protocol_names[static_cast<size_t>(protocol)], takes};
    }
  }
  return best;
}

// Where a ring has several ranks in each of several nodes a chunk changes the node once more or once less, by
// where it starts: NCCL counts once less, prices take the mean.
double more_changes(const Communicator& c, bool all_reduce) {
  if (c.nodes == 1 || c.nodes == c.ranks) return 0;
  return 1.4 * (14.0 - 3.4) * (all_reduce ? 2 : 1);
}

TEST(NcclTuning, ARingTakesWhatNcclExpects) {
  for (const Case& c : cases) {
    TransferPrices prices = prices_of(run_of(c));
    for (int64_t bytes = 8; bytes <= int64_t{1} << 34; bytes *= 2) {
      const Transfer gather = collective_on(Axis::dp_cp, OpKind::all_gather, bytes);
      const Best expected = nccl_choice(c, false, static_cast<double>(bytes));
      const double more = more_changes(c.communicator, false), takes = prices.seconds(gather)[0] * 1e6;
      EXPECT_TRUE(more > 0 || prices.choice(gather).protocol == expected.protocol) << c.what << " " << bytes;
      EXPECT_GE(takes, expected.microseconds * (1 - 1e-9)) << c.what << " " << bytes;
      EXPECT_LE(takes, (expected.microseconds + more) * (1 + 1e-9)) << c.what << " " << bytes;
    }
  }
}

// Of NCCL's 2 bytes for each byte of a tree, what its edges carry: (n - 1) / n, of nodes, or inside one.
double tree_traffic(const Communicator& c) { return 1 - 1.0 / (c.nodes > 2 ? c.nodes : c.ranks / c.nodes); }

// Between ring and tree too. Near a change of algorithm the choice may be the other one, as trees move a
// little less than NCCL's formula takes: then NCCL thinks both nearly as good.
TEST(NcclTuning, AnAllReduceIsDoneAsNcclWould) {
  int sizes = 0, as_nccl = 0;
  for (const Case& c : cases) {
    TransferPrices prices = prices_of(run_of(c));
    const double tree_share = tree_traffic(c.communicator), more = more_changes(c.communicator, true);
    for (int64_t bytes = 8; bytes <= int64_t{1} << 34; bytes *= 2) {
      const Transfer t = collective_on(Axis::dp_cp, OpKind::all_reduce, bytes);
      const Choice& choice = prices.choice(t);
      const auto size = static_cast<double>(bytes);
      const Best expected = nccl_choice(c, true, size);
      const auto protocol = std::find(protocol_names.begin(), protocol_names.end(), choice.protocol);
      ASSERT_NE(protocol, protocol_names.end());
      const double of_ours =
          nccl_time(c, true, choice.algorithm, static_cast<int>(protocol - protocol_names.begin()), size);
      const bool tree = choice.algorithm == "tree";
      const double takes = prices.seconds(t)[0] * 1e6;
      EXPECT_LE(of_ours * tree_share, (expected.microseconds + more) * (1 + 1e-9)) << c.what << " " << bytes;
      EXPECT_LE(takes, (of_ours + more) * (1 + 1e-9)) << c.what << " " << bytes;
      EXPECT_GE(takes, of_ours * (tree ? tree_share : 1) * (1 - 1e-9)) << c.what << " " << bytes;
      ++sizes;
      as_nccl += choice.algorithm == expected.algorithm && choice.protocol == expected.protocol ? 1 : 0;
    }
  }
  EXPECT_GE(as_nccl, 0.9 * sizes) << sizes;
}

TEST(NcclTuning, KnownChoices) {
  const auto chosen = [](const Case& c, int64_t bytes) {
    TransferPrices prices = prices_of(run_of(c));
    const Choice& choice = prices.choice(collective_on(Axis::dp_cp, OpKind::all_reduce, bytes));
    return choice.algorithm + " " + choice.protocol;
  };
  const Case &node = cases[0], &two = cases[2], &many = cases[3];
  EXPECT_EQ(chosen(node, 24), "ring LL");
  EXPECT_EQ(chosen(node, 16 << 20), "ring LL128");
  EXPECT_EQ(chosen(node, 4LL << 30), "ring Simple");
  EXPECT_EQ(chosen(two, 1024), "tree LL");
  EXPECT_EQ(chosen(many, 1024), "tree LL");
  EXPECT_EQ(chosen(many, 1 << 20), "tree LL128");
  EXPECT_EQ(chosen(many, 8LL << 30), "ring Simple");
  // 6.6 us and 14 hops of 0.6 us.
  TransferPrices prices = prices_of(run_of(node));
  EXPECT_NEAR(prices.seconds(collective_on(Axis::dp_cp, OpKind::all_reduce, 24))[0], 15e-6, 1e-9);
}

TEST(NcclTuning, MoreBytesNeverTakeLessTime) {
  for (const Case& c : cases) {
    TransferPrices prices = prices_of(run_of(c));
    double before = 0;
    for (double bytes = 8; bytes < 4e9; bytes *= 1.09) {
      const double takes =
          prices.seconds(collective_on(Axis::dp_cp, OpKind::all_reduce, static_cast<int64_t>(bytes)))[0];
      EXPECT_GE(takes, before) << c.what << " " << bytes;
      before = takes;
    }
  }
}

}  // namespace
}  // namespace lockstep::cost
