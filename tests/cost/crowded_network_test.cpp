// What a crowded network does to prices: every effect that a layout or a cluster can have, shown alone; and
// all algorithms against a pricing of their step lists, round by round.
#include <gtest/gtest.h>

#include <algorithm>
#include <map>

#include "cluster/fabric.hpp"
#include "cluster/max_min.hpp"
#include "collective/steps.hpp"
#include "cost/transfer_run.hpp"

namespace lockstep::cost {
namespace {

using config::CollectiveAlgorithm;
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

double slowest_of(const config::RunFile& run, Axis axis, OpKind kind, int64_t bytes) {
  TransferPrices prices = prices_of(run);
  return slowest(prices.seconds(collective_on(axis, kind, bytes)).by_rank());
}

TEST(CrowdedNetwork, ABadOrderOfAxesTakesTensorParallelOverTheNics) {
  // Groups of 8 beside one another, and the same mesh with the axes the other way round.
  const config::RunFile inside = run_on(round_cluster(), 8, 1, 16),
                        outside = run_on(round_cluster(), 16, 1, 8);
  const double good = slowest_of(inside, Axis::tp, OpKind::all_gather, large);
  const double bad = slowest_of(outside, Axis::dp_cp, OpKind::all_gather, large);
  EXPECT_NEAR(bad, 7 * 5e-6 + 7.0 / 8 * large / 50e9, 1e-12);
  EXPECT_GT(bad, 7.9 * good);
}

TEST(CrowdedNetwork, PodsMatter) {
  // Of 16 ranks, one a node: in a pod; then on 32 nodes in two pods, half of the groups' ranks in either.
  const double in_pod = slowest_of(run_on(round_cluster(), 8, 1, 16), Axis::dp_cp, OpKind::all_reduce, large);
  const double across =
      slowest_of(run_on(round_cluster(), 16, 1, 16), Axis::dp_cp, OpKind::all_reduce, large);
  // A ring enters a pod once, so 16 flows share 128/7 NICs: not crowded.
  EXPECT_NEAR(across / in_pod, 1, 1e-9);
  // Where every hop of a ring changes the pod the uplinks are.
  const double every_hop =
      slowest_of(run_on(round_cluster(), 128, 1, 4), Axis::dp_cp, OpKind::all_reduce, large);
  EXPECT_NEAR(every_hop, 2 * (3 * 5e-6 + 0.75 * large / (50e9 / 7)), 1e-9);
  // And the layers above cost latency, up and down.
  config::ClusterConfig c = round_cluster();
  c.switch_latency = 1e-6;
  TransferPrices messages = prices_of(run_on(c, 64, 4, 1));
  const auto& s = messages.seconds({OpKind::send, Axis::pp, 1, 1});
  EXPECT_NEAR(s[0], 5e-6 + 2e-6, 1e-10);  // stage 0 to 1: another rack of the pod
  EXPECT_NEAR(s[64], 5e-6 + 4e-6, 1e-9);  // stage 1 to 2: another pod
}

TEST(CrowdedNetwork, TwiceTheGpusIsAnotherAnswer) {
  const auto seconds = [](int64_t dp, int64_t bytes) {
    return slowest_of(run_on(round_cluster(), 8, 1, dp), Axis::dp_cp, OpKind::all_gather, bytes);
  };
  EXPECT_NEAR(seconds(16, 16) - seconds(8, 16), 8 * 5e-6, 1e-9);
  EXPECT_NEAR(seconds(16, large) / seconds(8, large), (15.0 / 16) / (7.0 / 8), 2e-3);
  // Over pods in step: 64 ranks a group, one in each of 64 nodes in 4 pods.
  EXPECT_GT(seconds(64, large), seconds(16, large));
}

TEST(CrowdedNetwork, AnNvlinkDomainOf72BeatsNodesOfEight) {
  config::ClusterConfig small_nodes = round_cluster();
  small_nodes.nvlink_bandwidth = 900e9;  // NVLink 5
  config::ClusterConfig domain = small_nodes;
  domain.gpus_per_node = domain.gpus_per_rack = 72;
  domain.gpus_per_pod = 576;
  const auto seconds = [](const config::ClusterConfig& c, OpKind kind, int64_t bytes) {
    return slowest_of(run_on(c, 64, 1, 1), Axis::tp, kind, bytes);
  };
  const double inside = seconds(domain, OpKind::all_reduce, large);
  EXPECT_NEAR(inside, 2 * (63 * 1e-6 + 63.0 / 64 * large / 900e9), 1e-12);
  // Eight nodes have eight NICs each.
  EXPECT_NEAR(seconds(small_nodes, OpKind::all_reduce, large) / (2 * 63.0 / 64 * large / 400e9), 1, 0.05);
  EXPECT_GT(seconds(small_nodes, OpKind::all_reduce, large), 2 * inside);
  EXPECT_GT(seconds(small_nodes, OpKind::all_gather, 1024), seconds(domain, OpKind::all_gather, 1024));
}

TEST(CrowdedNetwork, RailsAgainstRacks) {
  config::ClusterConfig racks = round_cluster(), rails = round_cluster();
  racks.rack_oversubscription = rails.rack_oversubscription = 4;
  rails.topology = config::Topology::rails;
  // dp over the nodes of a pod at the same place: a rail keeps all of it below the spine. In racks of two
  // nodes every other hop of a ring leaves the rack.
  const config::RunFile in_racks = run_on(racks, 8, 1, 16), in_rails = run_on(rails, 8, 1, 16);
  EXPECT_NEAR(slowest_of(in_rails, Axis::dp_cp, OpKind::all_gather, large),
              15 * 5e-6 + 15.0 / 16 * large / 50e9, 1e-12);
  EXPECT_NEAR(slowest_of(in_racks, Axis::dp_cp, OpKind::all_gather, large),
              15 * 5e-6 + 15.0 / 16 * large / (50e9 / 2), 1e-12);
  // tp of 4 over two places: the groups of pp change nodes at the same place too; a message to another place
  // crosses the spine.
  config::RunFile skewed = run_on(rails, 4, 3, 1);
  skewed.cluster.rack_oversubscription = 8;
  TransferPrices prices = prices_of(skewed);
  const auto& s = prices.seconds({OpKind::send, Axis::pp, large, 1});
  EXPECT_NEAR(s[0], large / 400e9 + 1e-6, 1e-9);  // stage 1 is on the same node
  EXPECT_LT(s[4], large / 20e9);                  // 4 to 8: another place, but nobody else is on the spine
}

TEST(CrowdedNetwork, HashedUplinksAreSlowerThanEvenOnes) {
  config::ClusterConfig even = round_cluster(), hashed = round_cluster();
  hashed.rack_uplinks = 16;  // 1:1
  const double spread = slowest_of(run_on(even, 16, 1, 8), Axis::dp_cp, OpKind::all_gather, large);
  const double collided = slowest_of(run_on(hashed, 16, 1, 8), Axis::dp_cp, OpKind::all_gather, large);
  EXPECT_GT(collided, 1.9 * spread);  // some two pairs meet
  EXPECT_LT(collided, 8 * spread);
  config::RunFile other_seed = run_on(hashed, 16, 1, 8);
  other_seed.simulate.seed = 77;
  TransferPrices a = prices_of(run_on(hashed, 16, 1, 8)), b = prices_of(other_seed),
                 c = prices_of(run_on(hashed, 16, 1, 8));
  const Transfer gather = collective_on(Axis::dp_cp, OpKind::all_gather, large);
  EXPECT_EQ(a.seconds(gather).by_rank(), c.seconds(gather).by_rank());
  EXPECT_NE(a.seconds(gather).by_rank(), b.seconds(gather).by_rank());
}

TEST(CrowdedNetwork, ASlowLinkSlowsItsOwnGroupAlone) {
  config::RunFile run = run_on(round_cluster(), 8, 1, 16);
  TransferPrices well = prices_of(run);
  run.simulate.slow_links = {{19, 5.0}};
  TransferPrices slow = prices_of(run);
  const Transfer gather = collective_on(Axis::dp_cp, OpKind::all_gather, large);
  const auto &before = well.seconds(gather), &after = slow.seconds(gather);
  for (size_t r = 0; r < before.size(); ++r) {
    if (r % 8 == 3) {
      EXPECT_NEAR(after[r], 15 * 5e-6 + 15.0 / 16 * large / 10e9, 1e-9) << r;
    } else {
      EXPECT_NEAR(after[r], before[r], 1e-12) << r;
    }
  }
  const Transfer inside = collective_on(Axis::tp, OpKind::all_gather, large);
  EXPECT_EQ(slow.seconds(inside).by_rank(), well.seconds(inside).by_rank());
}

TEST(CrowdedNetwork, NoTransferGetsFasterBesideAnother) {
  TransferPrices prices = prices_of(run_on(round_cluster(), 4, 4, 8));
  std::vector<Transfer> all = {{OpKind::send, Axis::pp, 1 << 24, 1}, {OpKind::send, Axis::pp, 1 << 24, -1}};
  for (const Axis axis : {Axis::tp, Axis::pp, Axis::dp_cp}) {
    for (const OpKind kind : {OpKind::all_reduce, OpKind::all_gather}) {
      all.push_back(collective_on(axis, kind, 1 << 24));
    }
  }
  for (const Transfer& one : all) {
    for (const Transfer& other : all) {
      const auto &alone = prices.seconds(one), &beside = prices.seconds_beside(one, {other});
      const auto& beside_two = prices.seconds_beside(one, {other, all.front()});
      for (size_t r = 0; r < alone.size(); ++r) {
        EXPECT_GE(beside[r], alone[r] * (1 - 1e-12));
        EXPECT_GE(beside_two[r], beside[r] * (1 - 1e-12));
      }
    }
  }
}

// Independent of the patterns: every step of every group is a flow, every round is shared out anew.
double priced_step_by_step(const config::RunFile& run, Axis axis, const collective::StepList& list,
                           double bytes, bool one_each) {
  const parallel::Mesh mesh(run);
  const cluster::Fabric fabric(run.cluster, mesh.size(), {}, 1);
  cluster::MaxMin solver(fabric.capacities());
  double seconds = 0;
  for (int round = 0; round < collective::rounds(list); ++round) {
    std::map<std::pair<int, int>, int> chunks;
    for (int rank = 0; rank < mesh.size(); ++rank) {
      const std::vector<int> group = mesh.group(axis, rank);
      if (group.front() != rank) continue;
      for (const collective::Step& s : list.steps) {
        if (s.round == round)
          ++chunks[{group[static_cast<size_t>(s.from)], group[static_cast<size_t>(s.to)]}];
      }
    }
    cluster::FlowSet flows;
    for (const auto& [pair, count] : chunks) {
      const auto path = fabric.path(pair.first, pair.second);
      flows.add(path.links(), one_each ? 1 : count);
    }
    const std::vector<double>& rates = solver.rates(flows);
    double longest = 0;
    size_t f = 0;
    for (const auto& [pair, count] : chunks) {
      const double carried = one_each ? count : 1;
      longest = std::max(longest, carried * bytes / list.chunks / rates[f++]);
    }
    seconds += longest;
  }
  return seconds;
}

struct Case {
  CollectiveAlgorithm algorithm;
  const char* name;
  bool one_each;  // all that a pair sends in a round is one flow
};

config::RunFile without_latencies(CollectiveAlgorithm algorithm, int64_t tp, int64_t dp) {
  config::RunFile run = run_on(round_cluster(), tp, 1, dp);
  run.cluster.nvlink_latency = run.cluster.nic_latency = 0;
  run.cluster.gpus_per_rack = 8;
  run.cluster.gpus_per_pod = 32;
  run.cluster.rack_oversubscription = 1.5;
  run.cluster.collective_algorithm = algorithm;
  return run;
}

TEST(CrowdedNetwork, PricesEqualThoseOfTheStepLists) {
  for (const Case& c : {Case{CollectiveAlgorithm::ring, "ring", false},
                        Case{CollectiveAlgorithm::hierarchical, "hierarchical", true},
                        Case{CollectiveAlgorithm::halving_doubling, "halving_doubling", true},
                        Case{CollectiveAlgorithm::direct, "direct", true}}) {
    for (const auto& [tp, dp] : {std::pair(1, 64), std::pair(2, 32), std::pair(8, 8), std::pair(4, 16)}) {
      const config::RunFile run = without_latencies(c.algorithm, tp, dp);
      const int per_node = 8 / tp;
      if (per_node == 1 && c.algorithm == CollectiveAlgorithm::hierarchical) continue;
      for (const auto& [kind, collective] :
           {std::pair(OpKind::all_reduce, collective::Collective::all_reduce),
            std::pair(OpKind::all_gather, collective::Collective::all_gather)}) {
        TransferPrices prices = prices_of(run);
        const Transfer t = collective_on(Axis::dp_cp, kind, large);
        const double priced = slowest(prices.seconds(t).by_rank());
        if (prices.choice(t).algorithm != c.name) {  // no all-gather by halving
          EXPECT_FALSE(prices.choice(t).as_configured);
          EXPECT_EQ(prices.choice(t).algorithm, "ring");
          continue;
        }
        const double listed = priced_step_by_step(
            run, Axis::dp_cp, collective::build(collective, c.name, dp, per_node), large, c.one_each);
        EXPECT_NEAR(priced / listed, 1, 1e-9) << c.name << " tp " << tp << " dp " << dp;
      }
    }
  }
}

// Filling and draining are priced as if all edges were busy, so a tree is never too cheap, and little too
// dear.
TEST(CrowdedNetwork, ATreeCostsALittleMoreThanItsStepList) {
  for (const auto& [tp, dp] : {std::pair(1, 32), std::pair(2, 16), std::pair(8, 8)}) {
    config::RunFile run = without_latencies(CollectiveAlgorithm::tree, tp, dp);
    run.cluster.nic_latency = 5e-6;
    run.cluster.nvlink_latency = 5e-6;
    TransferPrices prices = prices_of(run);
    for (const int64_t bytes : {1 << 10, 1 << 20, 1 << 26}) {
      const Transfer t = collective_on(Axis::dp_cp, OpKind::all_reduce, bytes);
      const double priced = slowest(prices.seconds(t).by_rank());
      const int pieces = std::min(prices.choice(t).pieces, 64);
      if (pieces != prices.choice(t).pieces) continue;  // the list would be long
      const collective::StepList list =
          collective::tree(collective::Collective::all_reduce, dp, 8 / tp, pieces);
      const double listed = priced_step_by_step(run, Axis::dp_cp, list, static_cast<double>(bytes), false) +
                            collective::rounds(list) * 5e-6;
      EXPECT_GE(priced, listed * (1 - 1e-9)) << tp << " " << bytes;
      EXPECT_LE(priced, listed * 1.4) << tp << " " << bytes;
    }
  }
}

// Groups of one axis may differ in what a piece costs: the pieces of a tree suit the slowest. With less
// oversubscription the groups inside a rack, whose hops cost nothing here, once decided for thousands of
// pieces.
TEST(Crowded, LessOversubscriptionNeverMakesATreeSlower) {
  config::ClusterConfig c = round_cluster();
  c.gpus_per_node = 4;
  c.gpus_per_rack = 12;
  c.gpus_per_pod = 24;
  c.nic_latency = 0;
  c.switch_latency = 1e-6;
  c.collective_algorithm = CollectiveAlgorithm::tree;
  double before = 0;
  for (const double oversubscription : {1.0, 1.5, 12.0}) {
    c.rack_oversubscription = oversubscription;
    const double now = slowest_of(run_on(c, 2, 5, 2), Axis::pp_ends, OpKind::all_reduce, 1 << 20);
    EXPECT_GE(now, before) << oversubscription;
    before = now;
  }
}

}  // namespace
}  // namespace lockstep::cost
