// gpt models: parameters, FLOPs, launches and activations against published formulas.
#include <gtest/gtest.h>

#include <numeric>

#include "model/layer_program.hpp"

namespace lockstep::model {
namespace {

// Narayanan et al., arXiv:2104.04473, in their letters.
struct Sizes {
  int64_t s, b, h, a, l, v, t;
};
constexpr Sizes sizes[] = {{2048, 1, 12288, 96, 96, 51200, 8},
                           {2048, 4, 6144, 64, 48, 51200, 8},
                           {1024, 3, 1024, 16, 24, 50304, 2},
                           {4096, 2, 8192, 64, 12, 50304, 1}};

config::RunFile run_of(const Sizes& z) {
  config::RunFile run;
  run.model.architecture = config::Architecture::gpt;
  run.model.layers = z.l;
  run.model.hidden = z.h;
  run.model.ffn = 4 * z.h;
  run.model.heads = run.model.kv_heads = z.a;
  run.model.vocab = z.v;
  run.model.positions = run.train.sequence = z.s;
  run.model.tie_embeddings = true;
  run.parallel.tp = z.t;
  run.parallel.micro_batch = z.b;
  run.software.attention = config::AttentionKernel::scores;
  run.software.dropout = true;
  return run;
}

// Their equation 2, and the last LayerNorm's 2 h, which it leaves out.
TEST(Gpt, ParametersAreThePublishedCount) {
  for (const Sizes& z : sizes) {
    const int64_t published = 12 * z.l * z.h * z.h + 13 * z.l * z.h + (z.v + z.s) * z.h;
    EXPECT_EQ(parameter_count(run_of(z).model), published + 2 * z.h);
    EXPECT_EQ(multiplying_parameter_count(run_of(z).model), 12 * z.l * z.h * z.h + z.v * z.h);
  }
  EXPECT_NEAR(static_cast<double>(parameter_count(run_of(sizes[0]).model)), 174.6e9, 0.1e9);
}

// What tensor parallel cuts and what it copies: weights of column-parallel products with their biases, of
// row-parallel ones without; LayerNorms and positions are whole everywhere.
TEST(Gpt, TensorParallelCutsBiasesWithTheirRows) {
  for (const Sizes& z : sizes) {
    const config::ModelConfig m = run_of(z).model;
    const ChunkContent layer{0, 1, false, false};
    const int64_t whole = 4 * z.h + 2 * z.h, cut = 12 * z.h * z.h + 7 * z.h;
    EXPECT_EQ(replicated_parameter_count(m, layer), whole);
    EXPECT_EQ(local_parameter_count(m, layer, z.t), whole + cut / z.t);
    EXPECT_EQ(tied_parameter_count(m, {0, 1, true, false}, z.t), (z.v + z.t - 1) / z.t * z.h);
    // Two chunks of one rank hold one matrix.
    EXPECT_EQ(tied_parameter_count(m, {0, 1, true, false, true}, z.t), 0);
    EXPECT_EQ(local_parameter_count(m, {1, 0, false, true, true}, z.t), 2 * z.h);
  }
}

double product_flops(const std::vector<Op>& ops) {
  double sum = 0;
  for (const Op& op : ops) sum += op.kind == OpKind::gemm ? op.flops : 0;
  return sum;
}

// Their appendix: 24 B s h^2 + 4 B s^2 h forward, twice that backward.
TEST(Gpt, FlopsOfALayerAreThePublishedOnes) {
  for (const Sizes& z : sizes) {
    const LayerProgram program{shard_shape(run_of(z)), {}};
    const double s = static_cast<double>(z.s), b = static_cast<double>(z.b), h = static_cast<double>(z.h);
    const double forward = (24 * b * s * h * h + 4 * b * s * s * h) / static_cast<double>(z.t);
    EXPECT_DOUBLE_EQ(product_flops(program.layer_forward()), forward);
    const double backward =
        product_flops(program.layer_backward_input({})) + product_flops(program.layer_backward_weight({}));
    EXPECT_DOUBLE_EQ(backward, 2 * forward);
  }
}

int launches(const std::vector<Op>& ops) {
  return std::accumulate(ops.begin(), ops.end(), 0, [](int sum, const Op& op) { return sum + op.launches; });
}

// Counted from Megatron-LM's layer, with scores and dropout, without sequence parallel: 17 forward, of which
// attention's core 7; 28 backward; with tensor parallel two collectives more each.
TEST(Gpt, LaunchesOfALayer) {
  config::RunFile run = run_of(sizes[3]);
  run.parallel.sequence_parallel = false;
  for (const int64_t tp : {1, 2}) {
    run.parallel.tp = tp;
    const LayerProgram program{shard_shape(run), {}};
    const int collectives = tp > 1 ? 2 : 0;
    EXPECT_EQ(launches(program.layer_forward()), 17 + collectives);
    const int backward =
        launches(program.layer_backward_input({})) + launches(program.layer_backward_weight({}));
    EXPECT_EQ(backward, 28 + collectives);
    const int again = launches(program.layer_backward_input({.attention = true})) -
                      launches(program.layer_backward_input({}));
    EXPECT_EQ(again, 7);
  }
}

// Korthikanti et al., arXiv:2205.05198, table 2, bytes of a layer in fp16 with dropout.
TEST(Gpt, ActivationsAreThePublishedOnes) {
  for (const Sizes& z : sizes) {
    config::RunFile run = run_of(z);
    const auto bytes = [&](const Recompute& r) { return layer_activation_bytes(shard_shape(run), r); };
    const int64_t sbh = z.s * z.b * z.h, scores = 5 * z.a * z.s * z.s * z.b;
    // Tensor and sequence parallel: sbh / t (34 + 5 a s / h); selective: 34 sbh / t. At t = 1 no parallelism.
    EXPECT_EQ(bytes({}), (34 * sbh + scores) / z.t);
    EXPECT_EQ(bytes({.attention = true}), 34 * sbh / z.t);
    EXPECT_EQ(bytes({.full = true}), 2 * sbh / z.t);
    // Tensor parallel alone: sbh (10 + 24 / t + 5 a s / (h t)).
    run.parallel.sequence_parallel = false;
    EXPECT_EQ(bytes({}), 10 * sbh + (24 * sbh + scores) / z.t);
    // Without dropout no masks, and one copy of the softmax's output.
    run.software.dropout = false;
    EXPECT_EQ(bytes({}), 8 * sbh + (24 * sbh + scores * 2 / 5) / z.t);
  }
}

// The whole layer again, or all but the last product, its sum and the residual.
TEST(Gpt, FullRecomputationMayStopBeforeTheLastProduct) {
  config::RunFile run = run_of(sizes[0]);
  LayerProgram program{shard_shape(run), {}};
  const std::vector<Op> forward = program.layer_forward();
  const std::vector<Op> stops = program.layer_recompute();
  EXPECT_EQ(stops, std::vector<Op>(forward.begin(), forward.end() - 3));
  run.software.recompute_early_stop = false;
  program.shape = shard_shape(run);
  EXPECT_EQ(program.layer_recompute(), forward);
}

int64_t memory_bytes(const std::vector<Op>& ops, std::string_view name) {
  for (const Op& op : ops) {
    if (op.name == name) return op.bytes;
  }
  return -1;
}

// Bytes of a logit: fused 4 + 4 in bf16, from an fp32 copy 10 + 10, one kernel an operation 34 + 26; beside
// them some numbers a token.
TEST(Loss, TrafficOfALogit) {
  using config::CrossEntropy;
  config::RunFile run = run_of(sizes[3]);
  const double logits = static_cast<double>(run.train.sequence * run.parallel.micro_batch * run.model.vocab);
  const std::tuple<CrossEntropy, int, int> kinds[] = {
      {CrossEntropy::fused, 4, 4}, {CrossEntropy::compiled, 10, 10}, {CrossEntropy::unfused, 34, 26}};
  for (const auto& [kind, forward, backward] : kinds) {
    run.software.cross_entropy = kind;
    const LayerProgram program{shard_shape(run), {}};
    const std::vector<Op> ops = program.head_forward();
    const int64_t bytes = memory_bytes(ops, "loss_max") + memory_bytes(ops, "loss_sum");
    EXPECT_NEAR(static_cast<double>(bytes) / logits, forward, 1e-3);
    EXPECT_NEAR(static_cast<double>(memory_bytes(program.head_backward_input(), "loss_backward")) / logits,
                backward, 1e-3);
  }
}

TEST(Software, ElementwiseTrafficAndCopiesOfCollectives) {
  config::RunFile run = run_of(sizes[0]);
  const std::vector<Op> plain = LayerProgram{shard_shape(run), {}}.layer_forward();
  run.software.elementwise_traffic = 2.5;
  run.software.tensor_parallel_copies = true;
  std::vector<Op> more = LayerProgram{shard_shape(run), {}}.layer_forward();
  int collectives = 0;
  for (size_t i = 0; i + 1 < more.size(); ++i) {
    if (!is_collective(more[i].kind)) continue;
    ++collectives;
    EXPECT_EQ(more[i + 1].name, "tp_copy");
    EXPECT_EQ(more[i + 1].bytes, 2 * more[i].bytes);
    more.erase(more.begin() + static_cast<std::ptrdiff_t>(i) + 1);
  }
  EXPECT_EQ(collectives, 4);
  ASSERT_EQ(more.size(), plain.size());
  for (size_t i = 0; i < plain.size(); ++i) {
    const double times = plain[i].kind == OpKind::memory ? 2.5 : 1;
    EXPECT_NEAR(static_cast<double>(more[i].bytes), times * static_cast<double>(plain[i].bytes), 0.5);
  }
}

TEST(Software, GradientsInTheTypeOfComputeKeepTheStateInFp32) {
  config::RunFile run = run_of(sizes[0]);
  EXPECT_EQ(shard_shape(run).gradient_bytes, 4);
  run.software.gradient_dtype = config::GradientDtype::compute;
  EXPECT_EQ(shard_shape(run).gradient_bytes, 2);
  EXPECT_EQ(shard_shape(run).state_bytes, 4);
  EXPECT_EQ(shard_shape(run).statistic_bytes, 4);
}

}  // namespace
}  // namespace lockstep::model
