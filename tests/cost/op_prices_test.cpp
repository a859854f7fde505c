#include "cost/op_prices.hpp"

#include <gtest/gtest.h>

#include "model/layer_program.hpp"
#include "parallel/sample_run.hpp"

namespace lockstep::cost {
namespace {

config::RunFile round_numbers() {
  config::RunFile run = tests::sample_run(1, 1, 1, 1, 1);
  run.cluster.gpus_per_node = run.cluster.gpus_per_pod = 8;
  run.cluster.peak_flops_bf16 = 1000e12;
  run.cluster.gemm_efficiency = 0.5;
  run.cluster.attention_efficiency = 0.25;
  run.cluster.memory_bandwidth = 2e12;
  run.cluster.memory_efficiency = 0.5;
  run.cluster.launch_seconds = 1e-6;
  return run;
}

TEST(OpPrices, ABatchThatIsNotReadAheadIsWaitedFor) {
  config::RunFile run = round_numbers();
  const model::Op load{
      "load_batch", model::OpKind::host, model::Axis::none, model::Stream::host, 1000000, 0, 0, 0, 0};
  const double ahead = OpPrices(run).kernel_seconds(load);
  run.data.prefetch = false;
  run.cluster.storage_bandwidth = 1e8;
  run.cluster.storage_latency = 2e-3;
  EXPECT_NEAR(OpPrices(run).kernel_seconds(load) - ahead, 2e-3 + 1e-2, 1e-12);
}

// It is read during the step before: what is left is waited for. 8 bytes a token, of one rank that reads both
// ends' tokens.
TEST(OpPrices, ABatchThatIsReadAheadIsWaitedForBeyondTheStep) {
  config::RunFile run = round_numbers();
  run.cluster.storage_bandwidth = 1e6;
  run.cluster.storage_latency = 2;
  const parallel::Layout layout(run);
  const auto programs = parallel::build_step_programs(layout);
  const double tokens = static_cast<double>(run.train.sequence * run.train.global_batch);
  const double read = 2 + 2 * 8 * tokens / 1e6;
  const auto wait = [&](double step_seconds) {
    return batch_wait(layout, programs, OpPrices(run), step_seconds);
  };
  EXPECT_NEAR(wait(0.5), read - 0.5, 1e-12);
  EXPECT_EQ(wait(read), 0);
  EXPECT_EQ(wait(2 * read), 0);
  run.data.prefetch = false;  // there the op itself reads
  EXPECT_EQ(wait(0.5), 0);
}

TEST(OpPrices, EachKindOfKernel) {
  const OpPrices prices(round_numbers());
  const auto seconds = [&](model::OpKind kind, double flops, int64_t bytes) {
    return prices.kernel_seconds(
        {"op", kind, model::Axis::none, model::Stream::compute, bytes, flops, 1280, 1280, 64});
  };
  EXPECT_NEAR(seconds(model::OpKind::memory, 0, 1000000), 1e-6 + 1e-6, 1e-15);
  EXPECT_NEAR(seconds(model::OpKind::host, 0, 1000000), 1e-6 + 1e-6, 1e-15);
  EXPECT_NEAR(seconds(model::OpKind::attention, 250e12, 8), 1 + 1e-6, 1e-12);
  // [1280, 64] x [64, 1280]: full tiles of 256 x 128, as long to fill as to run. The sizes count.
  const double work = 2 * 2.0 * 1280 * 1280 * 64;
  EXPECT_NEAR(seconds(model::OpKind::gemm, 1, 8), work / 500e12 + 1e-6, 1e-15);
  EXPECT_THROW(seconds(model::OpKind::send, 0, 8), std::invalid_argument);
}

// The program's attention counts what a causal mask leaves, and its price halves nothing more: the scores and
// the weighted sum are two products in which query i meets i + 1 keys, 2 FLOPs a number.
TEST(OpPrices, CausalAttentionCountsHalfOnce) {
  config::RunFile run = round_numbers();
  run.train.sequence = 4096;
  const OpPrices prices(run);
  const model::LayerProgram program{model::shard_shape(run), {}};
  double flops = 0;
  for (int64_t i = 0; i < 4096; ++i) flops += 2 * 2.0 * static_cast<double>((i + 1) * run.model.hidden);
  int found = 0;
  for (const model::Op& op : program.layer_forward()) {
    if (op.kind != model::OpKind::attention) continue;
    ++found;
    EXPECT_NEAR((prices.kernel_seconds(op) - 1e-6) / (flops / 250e12), 1, 1e-3);
  }
  EXPECT_EQ(found, 1);
}

// What the program states as FLOPs of a product is what its sizes say.
TEST(OpPrices, NoProductBeatsItsFlopsAtTheEfficiency) {
  const config::RunFile run = tests::llama3_405b();
  config::RunFile priced = run;
  priced.cluster = round_numbers().cluster;
  const OpPrices prices(priced);
  const model::LayerProgram program{model::shard_shape(run), {}};
  for (const model::Op& op : program.layer_forward()) {
    if (op.kind != model::OpKind::gemm) continue;
    const double least = op.flops / 500e12;
    EXPECT_GT(prices.kernel_seconds(op), least) << op.name;
    EXPECT_LT(prices.kernel_seconds(op), 1.1 * least) << op.name;  // large and in full tiles
  }
}

}  // namespace
}  // namespace lockstep::cost
