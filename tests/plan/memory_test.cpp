#include "plan/memory.hpp"

#include <gtest/gtest.h>

#include "base/json.hpp"
#include "parallel/sample_run.hpp"

namespace lockstep::plan {
namespace {

MemoryReport memory(const config::RunFile& run) {
  const parallel::Layout layout(run);
  return memory_of(layout, parallel::build_step_programs(layout));
}

// hidden 64, ffn 96, 8 heads, 4 KV heads, vocab 256, sequence 16, 8 layers; bf16.
constexpr int64_t layer_parameters = 64 * 64 + 2 * 32 * 64 + 64 * 64 + 3 * 96 * 64 + 2 * 64;

TEST(Memory, OneRankByHand) {
  const MemoryReport report = memory(tests::sample_run(1, 1, 1, 1, 2));
  const StageMemory& m = report.stages.at(0);
  const int64_t parameters = 8 * layer_parameters + 2 * 256 * 64 + 64;
  EXPECT_EQ(m.weights, 2 * parameters);
  EXPECT_EQ(m.gradients, 4 * parameters);
  EXPECT_EQ(m.optimizer, 12 * parameters);
  EXPECT_EQ(m.shard, 4 * parameters);
  // A layer keeps the inputs and outputs of both norms, q k v, attention's output, gate, up and the down
  // product's input, and a statistic a head and token.
  const int64_t layer = (4 * 16 * 64 + 16 * (64 + 2 * 32) + 16 * 64 + 3 * 16 * 96) * 2 + 16 * 8 * 4;
  const int64_t embedding = 16 * 8;
  const int64_t head = (2 * 16 * 64 + 16 * 256) * 2 + 16 * (4 + 8);
  EXPECT_EQ(m.activations, 8 * layer + embedding + head);  // 1F1B with one stage: one micro-batch at a time
  EXPECT_EQ(m.messages, 0);
  EXPECT_EQ(m.workspace, (2 * 16 * 64 + 4 * 16 * 96) * 2);  // more than the head's
  EXPECT_EQ(m.margin, static_cast<int64_t>(0.05 * static_cast<double>(m.total() - m.margin)));
  EXPECT_EQ(m.total(), m.weights + m.gradients + m.optimizer + m.activations + m.messages + m.shard +
                           m.workspace + m.margin);
}

TEST(Memory, ShardsAndCuts) {
  // tp 2, dp 3: a chunk's elements are rounded up to a multiple of 3.
  const MemoryReport report = memory(tests::sample_run(2, 1, 3, 1, 1));
  const int64_t elements = 8 * ((layer_parameters - 128) / 2 + 128) + 2 * 128 * 64 + 64;
  const int64_t shard = (elements + 2) / 3;
  EXPECT_EQ(report.stages[0].weights, 3 * shard * 2);
  EXPECT_EQ(report.stages[0].gradients, 3 * shard * 4);
  EXPECT_EQ(report.stages[0].optimizer, shard * 12);
}

// The norm needs every chunk's reduced gradients before the optimizer may use the first one's.
TEST(Memory, ReducedGradientsOfAllChunksAreHeldAtOnce) {
  const MemoryReport report = memory(tests::sample_run(1, 2, 1, 4, 2));  // a chunk is a layer
  EXPECT_EQ(report.stages[0].shard, 4 * (4 * layer_parameters + 256 * 64));
  EXPECT_EQ(report.stages[1].shard, 4 * (4 * layer_parameters + 256 * 64 + 64));
}

TEST(Memory, OneFOneBHoldsAsManyMicroBatchesAsStagesFollow) {
  const MemoryReport report = memory(tests::sample_run(1, 4, 1, 1, 8));
  const int64_t layer = (4 * 16 * 64 + 16 * (64 + 2 * 32) + 16 * 64 + 3 * 16 * 96) * 2 + 16 * 8 * 4;
  EXPECT_EQ(report.stages[0].activations, 4 * (2 * layer + 16 * 8));
  EXPECT_EQ(report.stages[1].activations, 3 * 2 * layer);
  EXPECT_EQ(report.stages[2].activations, 2 * 2 * layer);
  EXPECT_GT(report.stages[1].messages, 0);

  config::RunFile gpipe = tests::sample_run(1, 4, 1, 1, 8);
  gpipe.parallel.schedule = config::ScheduleKind::gpipe;
  EXPECT_EQ(memory(gpipe).stages[2].activations, 8 * 2 * layer);
}

TEST(Memory, RecomputationSavesWhatItSays) {
  config::RunFile run = tests::sample_run(1, 2, 1, 1, 4);
  const int64_t all = memory(run).stages[0].activations;
  run.parallel.recompute = {"norm", "swiglu"};
  EXPECT_EQ(all - memory(run).stages[0].activations, 2 * 4 * (2 * 16 * 64 + 16 * 96) * 2);
  run.parallel.recompute = {"full"};
  const StageMemory full = memory(run).stages[0];
  EXPECT_EQ(full.activations, 2 * (4 * 16 * 64 * 2 + 16 * 8));
  // One layer at a time comes back in backward.
  EXPECT_GT(full.workspace, memory(tests::sample_run(1, 2, 1, 1, 4)).stages[0].workspace);
}

TEST(Memory, TrainingStateAsPublishedAndAsHeld) {
  // 405e9 parameters: 6.48 TB; the exact count: 6.49 TB.
  EXPECT_NEAR(training_state(405e9, config::Dtype::bf16).published, 6.48e12, 1);
  const TrainingState exact = training_state(405853388800.0, config::Dtype::bf16);
  EXPECT_NEAR(exact.published / 1e12, 6.49, 0.005);
  EXPECT_NEAR(exact.own, 18 * 405853388800.0, 1);
  EXPECT_EQ(training_state(1, config::Dtype::fp64).own, 8 + 8 + 24);
}

TEST(Memory, TheLargeRunFits) {
  const config::RunFile run = config::load_run_file(LOCKSTEP_SOURCE_DIR "/configs/llama3-405b-16k.toml", {});
  const MemoryReport report = memory(run);
  ASSERT_EQ(report.stages.size(), 16u);
  EXPECT_TRUE(report.fits());
  EXPECT_EQ(report.capacity, 80000000000);
  const StageMemory& full = report.fullest();
  EXPECT_LT(full.total(), 80000000000);
  // By hand, of stage 1: eight chunks of one layer.
  const int64_t layer = (2 * 16384LL * 16384 + 2 * 1024LL * 16384 + 3 * 16384LL * 53248) / 8 + 2 * 16384;
  EXPECT_EQ(report.stages[1].weights, 8 * layer * 2);
  EXPECT_EQ(report.stages[1].gradients, 8 * layer * 4);
  EXPECT_EQ(report.stages[1].optimizer, 8 * ((layer + 127) / 128) * 12);
  EXPECT_EQ(report.stages[1].shard, 8 * ((layer + 127) / 128) * 4);
  const int64_t kept =
      (2 * 1024LL * 16384 + 8192LL * (16 + 2) * 128 + 8192LL * 2048 + 2 * 8192LL * 6656) * 2 +
      8192LL * 16 * 4;
  EXPECT_EQ(report.stages[1].activations, 128 * kept);
  // Without recomputation, or with more kept, it would not.
  config::RunFile none = run;
  none.parallel.recompute = {};
  EXPECT_FALSE(memory(none).fits());
}

TEST(Memory, JsonGivesTheFullestRankAndEveryStage) {
  const MemoryReport report = memory(tests::sample_run(1, 4, 1, 1, 8));
  const Json json = memory_json(report);
  std::vector<std::string> names;
  for (const auto& [name, value] : json.items()) names.push_back(name);
  EXPECT_EQ(names, (std::vector<std::string>{"weights_bytes", "gradients_bytes", "optimizer_bytes",
                                             "activations_bytes", "other_bytes", "total_bytes",
                                             "capacity_bytes", "fits", "stages"}));
  EXPECT_EQ(json["stages"].size(), 4u);
  int64_t most = 0;
  for (const Json& stage : json["stages"]) most = std::max(most, stage["total_bytes"].get<int64_t>());
  EXPECT_EQ(json["total_bytes"], most);
  EXPECT_EQ(json["weights_bytes"].get<int64_t>() + json["gradients_bytes"].get<int64_t>() +
                json["optimizer_bytes"].get<int64_t>() + json["activations_bytes"].get<int64_t>() +
                json["other_bytes"].get<int64_t>(),
            most);
}

}  // namespace
}  // namespace lockstep::plan
