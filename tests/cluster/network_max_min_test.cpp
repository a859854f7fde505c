// The solver against what defines max-min fairness, and against shares known in closed form.
#include "cluster/max_min.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <random>
#include <set>

namespace lockstep::cluster {
namespace {

// Rates are max-min fair if and only if no link carries more than it can, and every flow passes a full link
// on which none is faster (Bertsekas and Gallager, section 6.5.2). Nothing here fills progressively.
void expect_max_min(const std::vector<double>& capacities, const FlowSet& flows,
                    const std::vector<double>& rates) {
  std::vector<double> load(capacities.size(), 0.0), fastest(capacities.size(), 0.0);
  for (size_t f = 0; f < flows.size(); ++f) {
    for (const int l : flows.links(f)) {
      load[static_cast<size_t>(l)] += flows.weight(f) * rates[f];
      fastest[static_cast<size_t>(l)] = std::max(fastest[static_cast<size_t>(l)], rates[f]);
    }
  }
  for (size_t l = 0; l < load.size(); ++l) EXPECT_LE(load[l], capacities[l] * (1 + 1e-9)) << "link " << l;
  for (size_t f = 0; f < flows.size(); ++f) {
    if (flows.links(f).empty()) {
      EXPECT_TRUE(std::isinf(rates[f]));
      continue;
    }
    bool has_bottleneck = false;
    for (const int l : flows.links(f)) {
      const auto i = static_cast<size_t>(l);
      has_bottleneck |= load[i] >= capacities[i] * (1 - 1e-9) && rates[f] >= fastest[i] * (1 - 1e-9);
    }
    EXPECT_TRUE(has_bottleneck) << "flow " << f << " could go faster than " << rates[f];
  }
}

// What prices take: an equal part of the fullest link. Max-min fairness never gives less, and to the slowest
// of all flows nothing more.
TEST(MaxMin, NobodyGetsLessThanAnEqualPart) {
  std::mt19937 engine(11);
  const auto below = [&](size_t n) { return static_cast<int>(engine() % n); };
  for (int round = 0; round < 300; ++round) {
    std::vector<double> capacities(static_cast<size_t>(2 + below(12)));
    for (double& c : capacities) c = 1 + below(9);
    std::vector<int> weights(capacities.size());
    FlowSet flows;
    for (int f = 1 + below(20); f > 0; --f) {
      std::set<int> way;
      for (int l = 1 + below(3); l > 0; --l) way.insert(below(capacities.size()));
      flows.add(std::vector<int>(way.begin(), way.end()), 1 + below(3));
      for (const int l : way) weights[static_cast<size_t>(l)] += flows.weight(flows.size() - 1);
    }
    MaxMin links(capacities);
    const std::vector<double>& fair = links.rates(flows);
    double slowest = 1e9, least_part = 1e9;
    for (size_t f = 0; f < flows.size(); ++f) {
      double part = 1e9;
      for (const int l : flows.links(f)) {
        part = std::min(part, capacities[static_cast<size_t>(l)] / weights[static_cast<size_t>(l)]);
      }
      EXPECT_GE(fair[f], part * (1 - 1e-9));
      slowest = std::min(slowest, fair[f]);
      least_part = std::min(least_part, part);
    }
    EXPECT_NEAR(slowest, least_part, 1e-9);
  }
}

TEST(MaxMin, RandomFlowsAreFair) {
  std::mt19937 engine(7);
  const auto below = [&](size_t n) { return static_cast<int>(engine() % n); };
  for (int round = 0; round < 300; ++round) {
    std::vector<double> capacities(static_cast<size_t>(2 + below(40)));
    for (double& c : capacities) c = 1 + below(9);
    FlowSet flows;
    const int count = 1 + below(200);
    for (int f = 0; f < count; ++f) {
      std::vector<int> all(capacities.size());
      for (size_t l = 0; l < all.size(); ++l) all[l] = static_cast<int>(l);
      std::shuffle(all.begin(), all.end(), engine);
      all.resize(std::min<size_t>(all.size(), static_cast<size_t>(below(7))));
      flows.add(all, 1 + below(4));
    }
    MaxMin solver(capacities);
    expect_max_min(capacities, flows, solver.rates(flows));
  }
}

// One flow over both links, one over each: the textbook's line.
TEST(MaxMin, ALineOfLinks) {
  FlowSet flows;
  flows.add({0, 1});
  flows.add({0});
  flows.add({1});
  flows.add({1});
  const std::vector<double> capacities = {3, 3};
  MaxMin solver(capacities);
  EXPECT_EQ(solver.rates(flows), (std::vector<double>{1, 2, 1, 1}));
}

TEST(MaxMin, WeightsAreThatManyFlows) {
  FlowSet heavy, many;
  heavy.add({0, 1}, 3);
  heavy.add({0}, 1);
  for (int i = 0; i < 3; ++i) many.add({0, 1});
  many.add({0});
  const std::vector<double> capacities = {8, 3};
  MaxMin solver(capacities);
  const std::vector<double> merged = solver.rates(heavy);
  const std::vector<double> apart = solver.rates(many);
  EXPECT_EQ(merged[0], apart[0]);
  EXPECT_EQ(merged[1], apart[3]);
  EXPECT_EQ(merged, (std::vector<double>{1, 5}));
}

TEST(MaxMin, CallsDoNotSeeEachOther) {
  const std::vector<double> capacities = {10, 10};
  MaxMin solver(capacities);
  FlowSet flows;
  flows.add({0, 1});
  flows.add({1});
  EXPECT_EQ(solver.rates(flows), (std::vector<double>{5, 5}));
  flows.clear();
  flows.add({1});
  flows.add({});
  EXPECT_EQ(solver.rates(flows)[0], 10);
  EXPECT_THROW(flows.add({0}, 0), std::invalid_argument);
}

// More bandwidth on any link does not make the slowest flow slower. (A single flow may well get slower: what
// was held up elsewhere now takes part of its link.)
TEST(MaxMin, MoreBandwidthNeverSlowsAPattern) {
  std::mt19937 engine(11);
  for (int round = 0; round < 200; ++round) {
    std::vector<double> capacities(12);
    for (double& c : capacities) c = 1 + engine() % 9;
    FlowSet flows;
    for (int f = 0; f < 40; ++f) {
      const int a = static_cast<int>(engine() % 12);
      flows.add({a, (a + 1 + static_cast<int>(engine() % 11)) % 12}, 1 + static_cast<int>(engine() % 3));
    }
    const auto slowest = [&](const std::vector<double>& c) {
      MaxMin solver(c);
      const std::vector<double>& rates = solver.rates(flows);
      return *std::min_element(rates.begin(), rates.end());
    };
    const double before = slowest(capacities);
    capacities[engine() % 12] *= 1.5;
    EXPECT_GE(slowest(capacities), before * (1 - 1e-12));
  }
}

}  // namespace
}  // namespace lockstep::cluster
