// What runs is what the layer program says: names, streams, bytes and order of every op.
#include <gtest/gtest.h>

#include "harness.hpp"
#include "model/layer_program.hpp"
#include "nn/embedding.hpp"
#include "nn/head.hpp"
#include "nn/transformer_layer.hpp"

namespace lockstep::nn::test {
namespace {

void expect_same(const std::vector<OpRecord>& recorded, const std::vector<model::Op>& program) {
  ASSERT_EQ(recorded.size(), program.size());
  int64_t before = 0;
  for (size_t i = 0; i < program.size(); ++i) {
    SCOPED_TRACE(std::string(program[i].name) + ", op " + std::to_string(i));
    EXPECT_EQ(recorded[i].name, program[i].name);
    EXPECT_EQ(recorded[i].stream, program[i].stream);
    EXPECT_EQ(recorded[i].bytes, program[i].bytes);
    EXPECT_GE(recorded[i].start_ns, before);
    EXPECT_GE(recorded[i].end_ns, recorded[i].start_ns);
    before = recorded[i].end_ns;
  }
}

// This rank's tensors of a given type, by the shape alone.
LayerTensors layer_tensors(const Context& ctx, at::ScalarType type) {
  const model::ShardShape& s = ctx.shape;
  return {at::ones({s.hidden}, type),
          at::randn({s.qkv_width(), s.hidden}, type),
          at::randn({s.hidden, s.heads * s.head_dim}, type),
          at::ones({s.hidden}, type),
          at::randn({2 * s.ffn, s.hidden}, type),
          at::randn({s.hidden, s.ffn}, type)};
}

TEST(Program, LayerRunsTheLayerProgram) {
  for (const Case& c : all_cases()) {
    SCOPED_TRACE(describe(c));
    const model::LayerProgram program{c.shape(), {}};
    run_ranks(c, [&](Context& ctx, OpLog& log) {
      log.set_recording(true);
      const LayerWeights weights = layer_tensors(ctx, ctx.dtype);
      LayerGradients gradients = layer_tensors(ctx, ctx.gradient_dtype);
      LayerActivations kept;
      WeightStash stash;
      const at::Tensor x = at::randn({ctx.shape.tokens_sharded, c.hidden()}, ctx.dtype);
      layer_forward(ctx, weights, x, kept);
      expect_same(log.take(), program.layer_forward());
      layer_backward_input(ctx, weights, std::move(kept), x, gradients, stash);
      expect_same(log.take(), program.layer_backward_input());
      layer_backward_weight(ctx, std::move(stash), gradients);
      expect_same(log.take(), program.layer_backward_weight());
    });
  }
}

TEST(Program, EmbeddingAndHeadRunTheLayerProgram) {
  for (const Case& c : all_cases()) {
    SCOPED_TRACE(describe(c));
    const model::LayerProgram program{c.shape(), {}};
    run_ranks(c, [&](Context& ctx, OpLog& log) {
      log.set_recording(true);
      const model::ShardShape& s = ctx.shape;
      const HeadWeights weights{at::ones({s.hidden}, ctx.dtype), at::randn({s.vocab, s.hidden}, ctx.dtype)};
      HeadGradients gradients{at::zeros({s.hidden}, ctx.gradient_dtype),
                              at::zeros({s.vocab, s.hidden}, ctx.gradient_dtype)};
      const at::Tensor ids = at::arange(c.tokens(), at::kLong) % c.vocab;
      EmbeddingActivations embedded;
      const at::Tensor x = embedding_forward(ctx, weights.output, ids, embedded);
      expect_same(log.take(), program.embedding_forward());
      HeadActivations kept;
      head_forward(ctx, weights, x, ids, kept);
      expect_same(log.take(), program.head_forward());
      head_backward(ctx, weights, std::move(kept), 1, gradients);
      expect_same(log.take(), program.head_backward());
      embedding_backward(ctx, std::move(embedded), x, gradients.output);
      expect_same(log.take(), program.embedding_backward());
    });
  }
}

TEST(OpLog, RecordsOnlyWhileOnAndCarriesTheContext) {
  OpLog log;
  const at::Tensor operand = at::zeros({3}, at::kFloat), sum = at::zeros({2}, at::kDouble);
  { const OpScope scope(&log, "off", {operand}); }
  { const OpScope scope(nullptr, "nowhere", {operand}); }
  EXPECT_TRUE(log.take().empty());
  log.set_recording(true);
  log.set_context(2, 5);
  {
    OpScope scope(&log, "on", {operand});
    scope.accumulated(sum);
    log.set_context(-1, -1);  // belongs to what comes after
  }
  { const OpScope scope(&log, "message", Stream::pp, 77); }
  const std::vector<OpRecord> records = log.take();
  ASSERT_EQ(records.size(), 2U);
  EXPECT_EQ(records[0].name, "on");
  EXPECT_EQ(records[0].bytes, 3 * 4 + 2 * 2 * 8);
  EXPECT_EQ(records[0].chunk, 2);
  EXPECT_EQ(records[0].micro_batch, 5);
  EXPECT_EQ(records[1].stream, Stream::pp);
  EXPECT_EQ(records[1].bytes, 77);
  EXPECT_EQ(records[1].chunk, -1);
  EXPECT_TRUE(log.take().empty());
}

}  // namespace
}  // namespace lockstep::nn::test
