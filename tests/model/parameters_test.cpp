#include "model/parameters.hpp"

#include <gtest/gtest.h>

#include <algorithm>

#include "model/layer_program.hpp"

namespace lockstep::model {
namespace {

config::ModelConfig llama(int64_t layers, int64_t hidden, int64_t ffn, int64_t heads) {
  config::ModelConfig m;
  m.layers = layers;
  m.hidden = hidden;
  m.ffn = ffn;
  m.heads = heads;
  m.kv_heads = 8;
  m.vocab = 128256;
  return m;
}

// Published counts: arXiv:2407.21783 table 3 (rounded); exact ones from the released checkpoints' tensors.
TEST(Parameters, CountsOfLlama3) {
  EXPECT_EQ(parameter_count(llama(32, 4096, 14336, 32)), 8'030'261'248);
  EXPECT_EQ(parameter_count(llama(80, 8192, 28672, 64)), 70'553'706'496);
  EXPECT_EQ(parameter_count(llama(126, 16384, 53248, 128)), 405'853'388'800);
}

TEST(Parameters, TensorParallelCutsAllButTheNorms) {
  const config::ModelConfig m = llama(32, 4096, 14336, 32);
  const ChunkContent all{0, 32, true, true};
  const int64_t norms = replicated_parameter_count(m, all);
  EXPECT_EQ(norms, 4096 * 65);
  EXPECT_EQ(local_parameter_count(m, all, 8), (parameter_count(m) - norms) / 8 + norms);
}

TEST(Parameters, FlopsPerTokenInBothConventions) {
  const config::ModelConfig m = llama(126, 16384, 53248, 128);
  const double n = 405853388800.0 - 16384.0 * 253 - 128256.0 * 16384;
  EXPECT_DOUBLE_EQ(flops_per_token(m, 8192, false), 6 * n + 12.0 * 126 * 16384 * 8192);
  EXPECT_DOUBLE_EQ(flops_per_token(m, 8192, true), 6 * n + 6.0 * 126 * 16384 * 8192);
}

config::RunFile run_405b() {
  config::RunFile run;
  run.model = llama(126, 16384, 53248, 128);
  run.parallel.tp = 8;
  run.train.sequence = 8192;
  return run;
}

double total_flops(const std::vector<Op>& ops) {
  double sum = 0;
  for (const Op& op : ops) sum += op.flops;
  return sum;
}

int count(const std::vector<Op>& ops, OpKind kind) {
  return static_cast<int>(
      std::count_if(ops.begin(), ops.end(), [&](const Op& op) { return op.kind == kind; }));
}

// The program's FLOPs must be those that the formula for MFU counts: 2 N + causal attention forward, twice
// that backward (and one more product over the scores, which flash attention computes again).
TEST(LayerProgram, FlopsAgreeWithTheFormula) {
  const config::RunFile run = run_405b();
  const LayerProgram program{shard_shape(run), {}};
  const double tokens = 8192;
  const double products = 126 * 2.0 * (16384.0 * (16384 + 2 * 1024) + 16384.0 * 16384 + 3.0 * 16384 * 53248) +
                          2.0 * 16384 * 128256;
  const double attention = 126 * 2.0 * 16384 * 8192;  // 2 products x 2 S H, causal half
  const ChunkContent all{0, 126, true, true};
  EXPECT_NEAR(total_flops(program.chunk_forward(all)) * 8 / (tokens * (products + attention)), 1, 1e-12);
  EXPECT_NEAR(total_flops(program.chunk_backward(all)) * 8 / (tokens * (2 * products + 2.5 * attention)), 1,
              1e-12);
  EXPECT_NEAR(flops_per_token(run.model, 8192, true) / (3 * (products + attention)), 1, 1e-12);
}

TEST(LayerProgram, TwoAllReducesALayerEachWayWithoutSequenceParallel) {
  config::RunFile run = run_405b();
  run.parallel.sequence_parallel = false;
  const LayerProgram plain{shard_shape(run), {}};
  EXPECT_EQ(count(plain.layer_forward(), OpKind::all_reduce), 2);
  EXPECT_EQ(count(plain.layer_backward_input({}), OpKind::all_reduce), 2);
  EXPECT_EQ(count(plain.layer_backward_weight({}), OpKind::all_reduce), 0);

  run.parallel.sequence_parallel = true;
  const LayerProgram sharded{shard_shape(run), {}};
  EXPECT_EQ(count(sharded.layer_forward(), OpKind::all_reduce), 0);
  EXPECT_EQ(count(sharded.layer_forward(), OpKind::all_gather), 2);
  EXPECT_EQ(count(sharded.layer_forward(), OpKind::reduce_scatter), 2);
}

TEST(LayerProgram, RecomputeTradesMemoryForOps) {
  const ShardShape s = shard_shape(run_405b());
  const LayerProgram none{s, {}};
  const size_t plain = none.layer_backward_input({}).size() + none.layer_backward_weight({}).size();
  const auto ops_with = [&](Recompute r) {
    return none.layer_backward_input(r).size() + none.layer_backward_weight(r).size();
  };
  EXPECT_EQ(ops_with({.norm = true}), plain + 2);
  EXPECT_EQ(ops_with({.swiglu = true}), plain + 1);
  EXPECT_EQ(ops_with({.attention = true}), plain + 1);
  EXPECT_EQ(ops_with({.full = true}), plain + none.layer_recompute().size());
  // bytes: T H / tp for each norm's output, T F / tp, and the whole layer but its input
  const int64_t th = 8192 * 16384 * 2 / 8;
  EXPECT_EQ(layer_activation_bytes(s, {}) - layer_activation_bytes(s, {.norm = true}), 2 * th);
  EXPECT_EQ(layer_activation_bytes(s, {}) - layer_activation_bytes(s, {.swiglu = true}),
            8192 * 53248 * 2 / 8);
  EXPECT_EQ(layer_activation_bytes(s, {.full = true}), th);
}

// Every operand and result counts, what is added to twice. Counted by hand: 8 tokens (4 a rank) of width 4,
// 8 of 16 vocabulary rows a rank, bf16 with fp32 gradients and statistics.
TEST(LayerProgram, BytesCountEveryOperand) {
  config::RunFile run;
  run.model.hidden = 4;
  run.model.heads = run.model.kv_heads = 2;
  run.model.ffn = 4;
  run.model.vocab = 16;
  run.parallel.tp = 2;
  run.train.sequence = 8;
  const LayerProgram program{shard_shape(run), {}};
  const auto bytes = [](const std::vector<Op>& ops, std::string_view name) {
    const auto op = std::find_if(ops.begin(), ops.end(), [&](const Op& o) { return o.name == name; });
    return op == ops.end() ? -1 : op->bytes;
  };
  // ids; rows of 4 of the 8 tokens; all 8 written
  EXPECT_EQ(bytes(program.embedding_forward(), "embedding"), 8 * 8 + 4 * 8 + 8 * 8);
  // ids; gradients of 8 tokens; 4 fp32 rows added to
  EXPECT_EQ(bytes(program.embedding_backward(), "embedding_wgrad"), 8 * 8 + 8 * 8 + 2 * 4 * 16);
  // logits, targets, maxima; sums and targets' logits
  EXPECT_EQ(bytes(program.head_forward(), "loss_sum"), 8 * 16 + 8 * 8 + 8 * 4 + 2 * 8 * 4);
  // input, gradient, result; weight; the weight's gradient added to
  EXPECT_EQ(bytes(program.head_backward_input(), "final_norm_backward"), 3 * 4 * 8 + 8 + 2 * 16);
  EXPECT_EQ(bytes(program.layer_backward_input({}), "ffn_norm_backward"), 4 * 4 * 8 + 8 + 2 * 16);
}

}  // namespace
}  // namespace lockstep::model
