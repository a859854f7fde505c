#include "cost/op_prices.hpp"

#include <gtest/gtest.h>

#include <map>
#include <string_view>

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

// Only a layer's all-gathers and reduce-scatters stand beside a product: not those of embedding and output,
// no all-reduce, no other axis.
TEST(OpPrices, WhatSoftwareHidesBehindProductsIsNotWaitedFor) {
  config::RunFile run = tests::sample_run(2, 2, 1, 1, 1);
  run.parallel.sequence_parallel = true;
  run.software.tensor_parallel_overlap = 0.25;
  const OpPrices prices(run);
  const auto hidden = [&](const std::vector<model::Op>& ops) {
    int count = 0;
    for (const model::Op& op : ops) {
      const double share = prices.waited_share(op);
      if (share == 1) continue;
      EXPECT_EQ(share, 0.75);
      EXPECT_EQ(op.axis, model::Axis::tp);
      EXPECT_TRUE(op.kind == model::OpKind::all_gather || op.kind == model::OpKind::reduce_scatter);
      ++count;
    }
    return count;
  };
  const model::LayerProgram layers{model::shard_shape(run), model::recompute_of(run.parallel)};
  EXPECT_EQ(hidden(layers.layer_forward()), 4);  // into and out of attention and MLP
  EXPECT_EQ(hidden(layers.embedding_forward()), 0);
  EXPECT_EQ(hidden(layers.embedding_backward()), 0);
  EXPECT_EQ(hidden(layers.head_forward()), 0);
  EXPECT_EQ(hidden(layers.head_backward_input()), 0);
  run.parallel.sequence_parallel = false;
  const model::LayerProgram reduced{model::shard_shape(run), model::recompute_of(run.parallel)};
  EXPECT_EQ(hidden(reduced.layer_forward()), 0);
}

// What a worker does between two steps is part of the op that a step begins with, and of no other.
TEST(OpPrices, AStepsOverheadIsInItsHostOp) {
  config::RunFile run = round_numbers();
  const model::Op load{
      "load_batch", model::OpKind::host, model::Axis::none, model::Stream::host, 1000000, 0, 0, 0, 0};
  model::Op kernel = load;
  kernel.kind = model::OpKind::memory;
  const OpPrices before(run);
  run.cluster.step_overhead = 3e-4;
  const OpPrices after(run);
  EXPECT_NEAR(after.kernel_seconds(load) - before.kernel_seconds(load), 3e-4, 1e-15);
  EXPECT_EQ(after.kernel_seconds(kernel), before.kernel_seconds(kernel));
}

// Alone on a node a kernel takes its curve's time, with a worker on every core 1 + busy_slowdown of it,
// between them in proportion to the cores beside that are busy. More workers than cores keep no more of them
// busy.
TEST(OpPrices, WorkersBesideMakeKernelsLonger) {
  const model::Op kernel{
      "op", model::OpKind::memory, model::Axis::none, model::Stream::compute, 1000000, 0, 0, 0, 0};
  const auto seconds = [&](int dp, int64_t cores, int64_t gpus_per_node) {
    config::RunFile run = round_numbers();
    run.parallel.dp = run.cluster.gpus = dp;
    run.cluster.gpus_per_node = gpus_per_node;
    run.cluster.cores = cores;
    run.cluster.busy_slowdown = 0.3;
    return OpPrices(run).kernel_seconds(kernel);
  };
  const double alone = 2e-6;  // 1 MB at 1 TB/s, and its launch
  for (const auto& [dp, factor] : {std::pair{1, 1.0}, {2, 1.1}, {3, 1.2}, {4, 1.3}, {8, 1.3}}) {
    EXPECT_NEAR(seconds(dp, 4, 64), factor * alone, 1e-15) << dp;
  }
  EXPECT_NEAR(seconds(8, 4, 2), 1.1 * alone, 1e-15);  // two on each node
  EXPECT_NEAR(seconds(8, 1, 64), alone, 1e-15);       // no core beside
  EXPECT_NEAR(seconds(8, 0, 64), alone, 1e-15);       // devices of their own
}

// By the program's own ops: each takes the curve of its work, planted with shares that tell them apart.
TEST(OpPrices, KernelsTakeTheCurveOfTheirWork) {
  config::RunFile run = round_numbers();
  run.cluster.launch_seconds = 0;
  run.cluster.memory_curve = {{1, 0.5}};
  run.cluster.row_curve = {{1, 0.25}};
  run.cluster.exponential_curve = {{1, 0.125}};
  run.cluster.gemm_curve = {{1, 0.5}};
  run.cluster.weight_gradient_curve = {{1, 0.25}};
  const OpPrices prices(run);
  const model::LayerProgram program{model::shard_shape(run), {}};
  std::map<std::string_view, double> share;  // of the peak or the bandwidth
  for (const auto& ops : {program.layer_forward(), program.head_forward(), program.layer_backward_input({}),
                          program.layer_backward_weight({})}) {
    for (const model::Op& op : ops) {
      if (op.kind == model::OpKind::memory) {
        share[op.name] = static_cast<double>(op.bytes) / 2e12 / prices.kernel_seconds(op);
      } else if (op.kind == model::OpKind::gemm) {
        share[op.name] = op.flops / 1000e12 / prices.kernel_seconds(op);
      }
    }
  }
  for (const char* name : {"attention_residual", "ffn_residual", "loss_max"}) {
    EXPECT_NEAR(share.at(name), 0.5, 1e-9) << name;
  }
  for (const char* name : {"attention_norm", "ffn_norm", "final_norm", "rope", "rope_backward"}) {
    EXPECT_NEAR(share.at(name), 0.25, 1e-9) << name;
  }
  for (const char* name : {"swiglu", "swiglu_backward", "loss_sum"}) {
    EXPECT_NEAR(share.at(name), 0.125, 1e-9) << name;
  }
  EXPECT_LT(share.at("down_gemm_wgrad"), 0.25);
  EXPECT_GT(share.at("down_gemm_dgrad"), 1.5 * share.at("down_gemm_wgrad"));
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

// 3 launches and one of 2: 5 x 10 us, half as much again where tp fills more than half a node; of 8 ms a
// micro-batch half is in forwards, over 2 x 2 chunks.
TEST(OpPrices, APassTakesItsHostItsLaunches) {
  config::RunFile run = round_numbers();
  run.parallel.pp = run.parallel.virtual_stages = 2;
  run.software.host_seconds_per_launch = 10e-6;
  run.software.host_seconds_per_micro_batch = 8e-3;
  run.software.host_skew = 0.5;
  std::vector<model::Op> ops(4);
  ops.back().launches = 2;
  using Kind = parallel::ActionKind;
  run.parallel.tp = 4;
  EXPECT_NEAR(OpPrices(run).host_seconds(Kind::forward, ops), 50e-6 + 1e-3, 1e-15);
  EXPECT_NEAR(OpPrices(run).host_seconds(Kind::backward, ops), 50e-6 + 1e-3, 1e-15);
  EXPECT_NEAR(OpPrices(run).host_seconds(Kind::backward_weight, ops), 50e-6 + 0.5e-3, 1e-15);
  EXPECT_EQ(OpPrices(run).host_seconds(Kind::optimizer_step, ops), 0);
  run.parallel.tp = 8;
  EXPECT_NEAR(OpPrices(run).host_seconds(Kind::forward, ops), 75e-6 + 1e-3, 1e-15);
}

// A batch of products is priced as one product of all their tiles, a wave at a time.
TEST(OpPrices, BatchedProductsFillWavesTogether) {
  config::RunFile run = round_numbers();
  run.cluster.multiprocessors = 100;
  model::Op op{"batch", model::OpKind::gemm, model::Axis::none, model::Stream::compute, 1, 0, 256, 128, 64};
  const double wave = 2.0 * 100 * 256 * 128 * (64 + 64) / (1000e12 * 0.5);
  for (const int64_t waves : {1, 2, 10}) {
    op.batch = 100 * waves;
    EXPECT_NEAR(OpPrices(run).kernel_seconds(op), static_cast<double>(waves) * wave + 1e-6, 1e-15);
  }
}

}  // namespace
}  // namespace lockstep::cost
