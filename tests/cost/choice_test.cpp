// Which algorithm and protocol is chosen, what is fixed by the run file, and measured times.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "cost/measured_times.hpp"
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

Choice choice_of(const config::RunFile& run, OpKind kind, int64_t bytes, Axis axis = Axis::dp_cp) {
  TransferPrices prices = prices_of(run);
  return prices.choice(collective_on(axis, kind, bytes));
}

TEST(Choice, ProtocolsTradeLatencyForBandwidth) {
  config::RunFile run = run_on(round_cluster(), 8, 1, 16);
  EXPECT_EQ(choice_of(run, OpKind::all_gather, 1024).protocol, "Simple");
  run.cluster.low_latency_protocols = true;
  EXPECT_EQ(choice_of(run, OpKind::all_gather, 1024).protocol, "LL");
  EXPECT_EQ(choice_of(run, OpKind::all_gather, 8 << 20).protocol, "LL128");
  EXPECT_EQ(choice_of(run, OpKind::all_gather, 4LL << 30).protocol, "Simple");
  // With one rank a node LL's hop is 5 of Simple's 14 us, and it moves 20.4 GB/s (NCCL's tuning).
  TransferPrices prices = prices_of(run);
  EXPECT_NEAR(prices.seconds(collective_on(Axis::dp_cp, OpKind::all_gather, 1024))[0],
              15 * 5e-6 * 5 / 14 + 15.0 / 16 * 1024 / 20.4e9, 1e-12);
}

TEST(Choice, LargerIsNeverFaster) {
  config::RunFile run = run_on(round_cluster(), 4, 1, 64);
  run.cluster.low_latency_protocols = true;
  TransferPrices prices = prices_of(run);
  for (const OpKind kind : {OpKind::all_reduce, OpKind::all_gather}) {
    double before = 0;
    for (int64_t bytes = 1; bytes < 1LL << 36; bytes *= 2) {
      const double s = prices.seconds(collective_on(Axis::dp_cp, kind, bytes))[0];
      EXPECT_GE(s, before) << bytes;
      before = s;
    }
  }
}

TEST(Choice, AutomaticIsNeverSlowerThanWhatItChoosesFrom) {
  for (const int64_t bytes : {8LL, 1LL << 16, 1LL << 22, 1LL << 30}) {
    const auto seconds = [&](CollectiveAlgorithm algorithm) {
      config::RunFile run = run_on(round_cluster(), 2, 1, 64);
      run.cluster.collective_algorithm = algorithm;
      TransferPrices prices = prices_of(run);
      const Transfer t = collective_on(Axis::dp_cp, OpKind::all_reduce, bytes);
      EXPECT_TRUE(prices.choice(t).as_configured);
      return prices.seconds(t)[0];
    };
    EXPECT_EQ(seconds(CollectiveAlgorithm::automatic),
              std::min(seconds(CollectiveAlgorithm::ring), seconds(CollectiveAlgorithm::tree)));
  }
}

TEST(Choice, ANamedAlgorithmIsUsedWhereThereIsOne) {
  config::RunFile run = run_on(round_cluster(), 4, 1, 16);
  const auto named = [&](CollectiveAlgorithm algorithm, OpKind kind) {
    run.cluster.collective_algorithm = algorithm;
    return choice_of(run, kind, 1 << 20);
  };
  EXPECT_EQ(named(CollectiveAlgorithm::hierarchical, OpKind::all_gather).algorithm, "hierarchical");
  EXPECT_EQ(named(CollectiveAlgorithm::halving_doubling, OpKind::all_reduce).algorithm, "halving_doubling");
  EXPECT_EQ(named(CollectiveAlgorithm::direct, OpKind::reduce_scatter).algorithm, "direct");
  const Choice no_tree = named(CollectiveAlgorithm::tree, OpKind::all_gather);
  EXPECT_EQ(no_tree.algorithm, "ring");
  EXPECT_FALSE(no_tree.as_configured);
  run = run_on(round_cluster(), 4, 1, 12);  // not a power of two
  EXPECT_FALSE(named(CollectiveAlgorithm::halving_doubling, OpKind::all_reduce).as_configured);
  run = run_on(round_cluster(), 8, 1, 16);  // one rank a node
  EXPECT_FALSE(named(CollectiveAlgorithm::hierarchical, OpKind::all_reduce).as_configured);
  run = run_on(round_cluster(), 1, 1, 512);
  EXPECT_FALSE(named(CollectiveAlgorithm::direct, OpKind::all_reduce).as_configured);
}

TEST(Choice, HierarchicalNeedsFewerHopsOverNics) {
  config::RunFile run = run_on(round_cluster(), 1, 1, 128);
  run.cluster.collective_algorithm = CollectiveAlgorithm::hierarchical;
  TransferPrices prices = prices_of(run);
  const double bytes = 1 << 28;
  EXPECT_NEAR(prices.seconds(collective_on(Axis::dp_cp, OpKind::all_reduce, 1 << 28))[0],
              2 * (7 * 1e-6 + 7.0 / 8 * bytes / 400e9 + 15 * 5e-6 + 15.0 / 16 * bytes / 8 / 50e9), 1e-9);
}

TEST(Choice, OverheadComesOnce) {
  config::RunFile run = run_on(round_cluster(), 8, 2, 16);
  TransferPrices without = prices_of(run);
  run.cluster.message_overhead = 3e-6;
  TransferPrices with = prices_of(run);
  for (const Transfer& t :
       {collective_on(Axis::dp_cp, OpKind::all_reduce, 1 << 20),
        collective_on(Axis::tp, OpKind::all_gather, 1 << 20), Transfer{OpKind::send, Axis::pp, 1 << 20, 1}}) {
    EXPECT_NEAR(with.seconds(t)[0] - without.seconds(t)[0], 3e-6, 1e-12);
  }
  for (const double s : with.seconds(collective_on(Axis::cp, OpKind::all_gather, 1 << 20)).by_rank())
    EXPECT_EQ(s, 0);
}

TEST(MeasuredTimes, BetweenAndBeyondThePoints) {
  const MeasuredTimes times({{2, 1e3, 1e-5}, {2, 1e6, 1e-4}, {2, 1e9, 1e-1}, {8, 1e6, 4e-4}});
  EXPECT_DOUBLE_EQ(times.seconds(2, 1e6), 1e-4);
  EXPECT_NEAR(times.seconds(2, std::sqrt(1e3 * 1e6)), std::sqrt(1e-5 * 1e-4), 1e-12);
  EXPECT_NEAR(times.seconds(2, 1e12), 1e2, 1e-6);  // a thousand times the last point
  EXPECT_LT(times.seconds(2, 1), 1e-5);
  EXPECT_NEAR(times.seconds(2, 1), 1e-6, 1e-12);  // the first line goes on
  EXPECT_DOUBLE_EQ(times.seconds(2, 0), 1e-5);
  EXPECT_NEAR(times.seconds(4, 1e6), 2e-4, 1e-12);  // between 2 and 8 ranks
  EXPECT_DOUBLE_EQ(times.seconds(64, 1e6), 4e-4);   // the nearest
  EXPECT_DOUBLE_EQ(times.seconds(8, 1e7), 4e-3);    // in proportion
  // Points so near that their line would leave the earth, up or down.
  const MeasuredTimes steep({{4, 1024, 1e-5}, {4, 1100, 2e-5}}), falling({{4, 1024, 2e-5}, {4, 1100, 1e-5}});
  EXPECT_NEAR(steep.seconds(4, 1100e3), 2e-2, 1e-12);
  EXPECT_NEAR(steep.seconds(4, 512), 0.5e-5, 1e-15);
  EXPECT_DOUBLE_EQ(falling.seconds(4, 1e9), 1e-5);
  EXPECT_DOUBLE_EQ(falling.seconds(4, 1), 2e-5);
  EXPECT_DOUBLE_EQ(times.seconds(8, 1e5), 4e-4);
  // Noise that makes larger ones faster does not go on.
  const MeasuredTimes noisy({{2, 1e3, 2e-5}, {2, 1e4, 1e-5}});
  EXPECT_DOUBLE_EQ(noisy.seconds(2, 1e6), 1e-5);
  EXPECT_DOUBLE_EQ(noisy.seconds(2, 10), 2e-5);
}

TEST(MeasuredTimes, ReplaceTheModelForTheirKind) {
  config::RunFile run = run_on(round_cluster(), 8, 2, 16);
  TransferPrices model = prices_of(run);
  run.cluster.all_gather_times = {{8, 1e6, 1e-3}, {16, 1e6, 3e-3}};
  run.cluster.message_times = {{2, 1e6, 7e-3}};
  TransferPrices prices = prices_of(run);
  const Transfer tp = collective_on(Axis::tp, OpKind::all_gather, 1'000'000);
  const Transfer dp = collective_on(Axis::dp_cp, OpKind::all_gather, 1'000'000);
  EXPECT_DOUBLE_EQ(prices.seconds(tp)[0], 1e-3);
  EXPECT_DOUBLE_EQ(prices.seconds(dp)[0], 3e-3);
  EXPECT_EQ(prices.choice(dp).algorithm, "measured");
  EXPECT_DOUBLE_EQ(prices.seconds({OpKind::send, Axis::pp, 1'000'000, 1})[0], 7e-3);
  const Transfer other_kind = collective_on(Axis::dp_cp, OpKind::all_reduce, 1'000'000);
  EXPECT_EQ(prices.seconds(other_kind).by_rank(), model.seconds(other_kind).by_rank());
  // Beside another transfer it grows as the model does.
  const Transfer send{OpKind::send, Axis::pp, 1 << 26, 1};
  const double growth = model.seconds_beside(dp, {send})[0] / model.seconds(dp)[0];
  EXPECT_GT(growth, 1.05);
  EXPECT_NEAR(prices.seconds_beside(dp, {send})[0], 3e-3 * growth, 1e-12);
}

}  // namespace
}  // namespace lockstep::cost
