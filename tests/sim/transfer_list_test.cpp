#include "sim/transfer_list.hpp"

#include <gtest/gtest.h>

#include <map>
#include <set>
#include <sstream>
#include <tuple>

#include "base/json.hpp"
#include "sim/small_runs.hpp"

namespace lockstep::sim {
namespace {

using model::Axis;
using model::OpKind;

std::vector<ListedTransfer> list_of(const config::RunFile& run) {
  const parallel::Layout layout(run);
  cost::TransferPrices prices(layout.run(), layout.mesh());
  return list_transfers(layout, parallel::build_step_programs(layout), prices);
}

const ListedTransfer& find(const std::vector<ListedTransfer>& list, OpKind kind, Axis axis) {
  for (const ListedTransfer& t : list) {
    if (t.transfer.kind == kind && t.transfer.axis == axis) return t;
  }
  throw std::runtime_error("is not listed");
}

// tp 2 inside a node, pp 2, dp 4, 3 micro-batches; two layers a stage.
config::RunFile sample() {
  config::RunFile run = test::small_run(2, 2, 4, 1, 3);
  run.model.layers = 4;
  return run;
}

TEST(TransferList, CountsAreThoseOfTheProgram) {
  const auto list = list_of(sample());
  EXPECT_EQ(find(list, OpKind::send, Axis::pp).times, 3);  // of a stage, one way
  EXPECT_EQ(find(list, OpKind::reduce_scatter, Axis::dp_cp).times, 1);
  // Of every other one as often as the stage has it that has it most often.
  const parallel::Layout layout(sample());
  std::map<std::tuple<OpKind, Axis, int64_t>, int64_t> most;
  for (const parallel::Program& program : parallel::build_step_programs(layout)) {
    std::map<std::tuple<OpKind, Axis, int64_t>, int64_t> here;
    for (const parallel::Action& action : program.actions) {
      for (const model::Op& op : parallel::action_ops(layout, program.stage, action)) {
        if (layout.mesh().size(op.axis) > 1 && model::is_collective(op.kind))
          ++here[{op.kind, op.axis, op.bytes}];
      }
    }
    for (const auto& [transfer, times] : here) most[transfer] = std::max(most[transfer], times);
  }
  size_t collectives = 0;
  for (const ListedTransfer& t : list) {
    if (t.transfer.kind == OpKind::send) continue;
    ++collectives;
    EXPECT_EQ(t.times, (most.at({t.transfer.kind, t.transfer.axis, t.transfer.bytes})));
  }
  EXPECT_EQ(collectives, most.size());
}

TEST(TransferList, LongestInAllFirstAndEachOnce) {
  const auto list = list_of(sample());
  std::set<cost::Transfer> seen;
  for (size_t i = 0; i < list.size(); ++i) {
    EXPECT_TRUE(seen.insert(list[i].transfer).second);
    EXPECT_TRUE(i == 0 || list[i].seconds_in_all() <= list[i - 1].seconds_in_all());
    EXPECT_GT(list[i].times, 0);
  }
  EXPECT_THROW(find(list, OpKind::all_gather, Axis::cp), std::runtime_error);  // one rank alone
}

// nccl-tests, doc/PERFORMANCE.md: 2 (n - 1) / n of an all-reduce's bytes, (n - 1) / n of a gather's.
TEST(TransferList, BusBandwidthIsThatOfNcclTests) {
  config::RunFile run = sample();
  run.cluster.low_latency_protocols = false;
  run.cluster.nvlink_latency = run.cluster.nic_latency = run.cluster.message_overhead = 0;
  run.cluster.switch_latency = 0;
  run.cluster.collective_algorithm = config::CollectiveAlgorithm::ring;
  int compared = 0;
  for (const ListedTransfer& t : list_of(run)) {
    if (t.transfer.axis != Axis::tp) continue;
    ++compared;
    EXPECT_TRUE(t.choice.over_nvlink && !t.choice.over_nic);
    EXPECT_NEAR(t.bus_bandwidth / (run.cluster.nvlink_bandwidth * run.cluster.network_efficiency), 1, 1e-9);
  }
  EXPECT_GT(compared, 1);
}

TEST(TransferList, SaysWhereTheConfiguredAlgorithmIsMissing) {
  config::RunFile run = sample();
  EXPECT_EQ(transfers_text(run, list_of(run), {}).find("*"), std::string::npos);
  run.cluster.collective_algorithm = config::CollectiveAlgorithm::halving_doubling;
  const auto list = list_of(run);
  EXPECT_TRUE(find(list, OpKind::all_reduce, Axis::tp).choice.as_configured);
  EXPECT_FALSE(find(list, OpKind::all_gather, Axis::tp).choice.as_configured);
  const std::string text = transfers_text(run, list, {});
  EXPECT_NE(text.find(" *"), std::string::npos) << text;
  EXPECT_NE(text.find("= \"halving_doubling\" does not exist: a ring"), std::string::npos) << text;
  EXPECT_EQ(transfers_json(list).dump().find("\"as_configured\":false") == std::string::npos, false);
}

TEST(TransferList, FitsAHundredColumns) {
  config::RunFile run = config::load_run_file(LOCKSTEP_SOURCE_DIR "/configs/llama3-405b-16k.toml",
                                              {"cluster.collective_algorithm=halving_doubling"});
  run.parallel.cp = 2;
  run.parallel.dp = 64;
  const auto list = list_of(run);
  std::istringstream lines(transfers_text(run, list, {}));
  for (std::string line; std::getline(lines, line);) {
    const auto continued = std::count_if(line.begin(), line.end(), [](char c) { return (c & 0xC0) == 0x80; });
    EXPECT_LE(static_cast<int64_t>(line.size()) - continued, 100) << line;
  }
}

}  // namespace
}  // namespace lockstep::sim
