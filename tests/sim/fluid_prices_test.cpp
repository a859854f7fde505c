// What a collective or a message takes, all groups of its axis at once: the cost model's price against the
// same executed flow by flow.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <set>

#include "parallel/drawn_run.hpp"
#include "sim/drawn_layouts.hpp"
#include "sim/fluid_collective.hpp"

namespace lockstep::tests {
namespace {

using config::CollectiveAlgorithm;
using model::Axis;
using model::OpKind;

constexpr std::array algorithms = {CollectiveAlgorithm::ring, CollectiveAlgorithm::tree,
                                   CollectiveAlgorithm::halving_doubling, CollectiveAlgorithm::hierarchical,
                                   CollectiveAlgorithm::direct};

// Calls visit(transfer, its price by rank, the same by the fluid simulator) for each kind of transfer along
// each axis that has the configured algorithm.
template <class Visit>
void each_transfer(const config::RunFile& run, std::initializer_list<int64_t> sizes, Visit visit) {
  const parallel::Mesh mesh(run);
  cost::TransferPrices prices(run, mesh);
  for (const Axis axis : {Axis::tp, Axis::cp, Axis::pp, Axis::dp_cp}) {
    for (const OpKind kind : {OpKind::all_reduce, OpKind::all_gather, OpKind::reduce_scatter, OpKind::send}) {
      const bool message = kind == OpKind::send;
      if (mesh.size(axis) < 2 || (message && axis != Axis::pp)) continue;
      for (const int64_t bytes : sizes) {
        const cost::Transfer transfer{kind, axis, bytes, message ? 1 : 0};
        const cost::Choice choice = prices.choice(transfer);
        if (!choice.as_configured) continue;
        SCOPED_TRACE(choice.algorithm + " " + choice.protocol + " " + to_string(kind) + " over " +
                     to_string(axis) + ", bytes " + std::to_string(bytes));
        visit(transfer, choice, prices.seconds(transfer).by_rank(), fluid_seconds(run, mesh, transfer));
      }
    }
  }
}

// All hops of all groups are alike: every price is exact.
TEST(FluidPrices, SymmetricPatterns) {
  int compared = 0;
  for (const char* order : {"tp-cp-pp-dp", "dp-tp-cp-pp", "pp-dp-cp-tp"}) {
    for (const int64_t node : {1, 2, 4, 8, 32}) {
      config::RunFile run = sample_run(2, 2, 4, 1, 1);
      run.parallel.cp = 2;
      run.parallel.rank_order = order;
      run.cluster = small_cluster(node, 32);
      run.cluster.message_overhead = 1e-5;
      run.cluster.low_latency_protocols = false;
      const parallel::Mesh mesh(run);
      const auto is_alike = [&](Axis axis) {
        std::set<int64_t> nodes;
        const std::vector<int> group = mesh.group(axis, 0);
        for (const int rank : group) nodes.insert(rank / node);
        return nodes.size() == 1 || nodes.size() == group.size();
      };
      for (const CollectiveAlgorithm algorithm : algorithms) {
        if (algorithm == CollectiveAlgorithm::tree) continue;
        run.cluster.collective_algorithm = algorithm;
        each_transfer(run, {8'000, 1'000'000},
                      [&](const auto& transfer, const auto&, const auto& price, const auto& fluid) {
                        if (!is_alike(transfer.axis)) return;
                        ++compared;
                        for (size_t r = 0; r < price.size(); ++r)
                          ASSERT_NEAR(price[r], fluid[r], 1e-6 * fluid[r]) << r;
                      });
      }
    }
  }
  EXPECT_GT(compared, 500);
}

// Four groups share each rack's uplinks, at an eighth of what their NICs could send.
TEST(FluidPrices, GroupsThatShareUplinks) {
  config::RunFile run = sample_run(4, 1, 4, 1, 1);
  run.cluster = small_cluster(1, 16);
  run.cluster.gpus_per_rack = 4;
  run.cluster.rack_oversubscription = 8;
  run.cluster.low_latency_protocols = false;
  run.cluster.switch_latency = 1e-6;
  int compared = 0;
  for (const CollectiveAlgorithm algorithm : algorithms) {
    if (algorithm == CollectiveAlgorithm::tree) continue;
    run.cluster.collective_algorithm = algorithm;
    each_transfer(run, {8'000, 1'000'000},
                  [&](const auto&, const auto&, const auto& price, const auto& fluid) {
                    ++compared;
                    for (size_t r = 0; r < price.size(); ++r)
                      ASSERT_NEAR(price[r], fluid[r], 1e-6 * fluid[r]);
                  });
  }
  EXPECT_EQ(compared, 2 * 2 * (3 + 1 + 3));  // axes, sizes; ring, halving and doubling, direct
}

// Rounds that follow one another on one rank's way.
double rounds_of(const std::string& algorithm, OpKind kind, int ranks) {
  if (algorithm == "message") return 1;
  if (algorithm == "halving_doubling") return 2 * std::log2(ranks);
  const double phases = kind == OpKind::all_reduce ? 2 : 1;
  return algorithm == "direct" ? phases : phases * (ranks - 1);
}

// Price and fluid agree in all that bytes take, for the slowest group. They may differ by latency:
// - In a ring with unlike hops latency may pass while the slowest hop is busy, which the price adds: all of
//   it at most.
// - The price counts n - 1 mean hops, a chunk may pass all but the shortest: mean less shortest a phase, of
//   three ranks at most a third of all latency.
// A flow counts on an equal part of its links, where flows may have more whose partners are held up
// elsewhere: prices of other groups are bounded below alone.
void expect_close_but_for_latency(double latency, const std::vector<double>& price,
                                  const std::vector<double>& fluid, double most) {
  const double slowest_price = *std::max_element(price.begin(), price.end());
  const double slowest = *std::max_element(fluid.begin(), fluid.end());
  EXPECT_LE(slowest_price, most * slowest * (1 + 1e-6) + latency);
  for (size_t r = 0; r < price.size(); ++r) {
    ASSERT_GE(price[r], fluid[r] * (1 - 1e-6) - latency / 3) << "rank " << r;
  }
}

// A tree's price is never below: rounds that fill and drain count as full ones. Up to 1.65 times as much. The
// slowest group's: executed are as many pieces for all as are best for it.
void expect_tree_above(const std::vector<double>& price, const std::vector<double>& fluid) {
  const double slowest_price = *std::max_element(price.begin(), price.end());
  EXPECT_LE(slowest_price, 1.65 * *std::max_element(fluid.begin(), fluid.end()));
  for (size_t r = 0; r < price.size(); ++r) {
    if (price[r] < slowest_price) continue;
    ASSERT_GE(price[r], fluid[r] * (1 - 1e-6)) << "rank " << r;
  }
}

config::RunFile small_draw(Drawn& drawn, bool crowd) {
  for (;;) {
    config::RunFile run = drawn.run();
    if (crowd) drawn.crowd(run);
    run.cluster.low_latency_protocols = false;  // the links alone
    if (run.parallel.world_size() >= 4 && run.parallel.world_size() <= 32) return run;
  }
}

void compare_drawn(bool crowd, bool slow_link) {
  Drawn drawn(11);
  for (int i = 0; i < 25; ++i) {
    config::RunFile run = small_draw(drawn, crowd);
    const int64_t ranks = run.parallel.world_size();
    if (slow_link) run.simulate.slow_links = {{ranks / 2, 3.0}};
    const parallel::Mesh mesh(run);
    for (const CollectiveAlgorithm algorithm : algorithms) {
      run.cluster.collective_algorithm = algorithm;
      SCOPED_TRACE(describe(run) + " order " + run.parallel.rank_order);
      const double hop =
          std::max(run.cluster.nic_latency + 4 * run.cluster.switch_latency, run.cluster.nvlink_latency);
      each_transfer(run, {8'000, 1'000'000},
                    [&](const auto& transfer, const auto& choice, const auto& price, const auto& fluid) {
                      if (choice.algorithm == "tree") return expect_tree_above(price, fluid);
                      // A slow link puts partners, and so whole groups, out of step: a link that the price
                      // has them share they then pass one after the other.
                      const bool out_of_step = slow_link && choice.algorithm == "halving_doubling";
                      const int n = transfer.kind == OpKind::send ? 2 : mesh.size(transfer.axis);
                      expect_close_but_for_latency(hop * rounds_of(choice.algorithm, transfer.kind, n), price,
                                                   fluid, out_of_step ? 1.2 : 1);
                    });
      if (::testing::Test::HasFailure()) return;
    }
  }
}

TEST(FluidPrices, DrawnLayouts) { compare_drawn(false, false); }
TEST(FluidPrices, DrawnLayoutsOnACrowdedNetwork) { compare_drawn(true, false); }
TEST(FluidPrices, DrawnLayoutsWithASlowLink) { compare_drawn(true, true); }

}  // namespace
}  // namespace lockstep::tests
