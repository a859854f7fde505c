// Finding the op, layer and rank at which the first NaN or infinity appeared.
#include <gtest/gtest.h>

#include <limits>

#include "chunk.hpp"

namespace lockstep::nn::test {
namespace {

constexpr model::ChunkContent middle{1, 4, false, true};  // layers 1 .. 4 of the model, and the head
constexpr double infinity = std::numeric_limits<double>::infinity();

struct Planted {
  at::Tensor LayerTensors::*weight = nullptr;  // null: none
  size_t rank = 0;
  bool after_forward = false;
  double value = infinity;
  int64_t element = 5;  // of the flattened weight, from its end where negative
};

// Runs forward and backward with `planted` in layer 2 of the model; what each rank found.
std::vector<std::optional<NonFiniteOp>> found(const Case& c, const Planted& planted) {
  std::vector<std::optional<NonFiniteOp>> of_ranks(c.ranks());
  run_ranks(c, [&](Context& ctx, OpLog& log) {
    log.set_context(3, 7);
    log.set_checking(true);
    Chunk chunk(ctx, c, middle, {});
    const auto plant = [&] {
      if (planted.weight == nullptr || rank_of(ctx) != planted.rank) return;
      (chunk.layer(1).*planted.weight).view(-1)[planted.element] = planted.value;
    };
    if (!planted.after_forward) plant();
    chunk.forward();
    if (planted.after_forward) plant();
    chunk.backward();
    of_ranks[rank_of(ctx)] = log.first_non_finite();
    EXPECT_TRUE(log.take().empty()) << "checking does not record";
  });
  return of_ranks;
}

TEST(NonFinite, AHealthyRunHasNone) {
  for (const Case& c : chunk_layouts()) {
    for (const auto& op : found(c, {})) EXPECT_FALSE(op.has_value()) << describe(c) << " " << op->name;
  }
}

TEST(NonFinite, NamesOpAndLayer) {
  struct Expected {
    Planted planted;
    std::string_view op;
  };
  const Expected cases[] = {
      {{.weight = &LayerTensors::attention_norm}, "attention_norm"},
      {{.weight = &LayerTensors::qkv}, "qkv_gemm"},
      {{.weight = &LayerTensors::attention_out, .value = std::nan("")}, "attention_out_gemm"},
      {{.weight = &LayerTensors::gate_up}, "gate_up_gemm"},
      {{.weight = &LayerTensors::down}, "down_gemm"},
      {{.weight = &LayerTensors::down, .after_forward = true}, "down_gemm_dgrad"},
      {{.weight = &LayerTensors::gate_up, .after_forward = true}, "gate_up_gemm_dgrad"},
      {{.weight = &LayerTensors::ffn_norm, .after_forward = true}, "ffn_norm_backward"},
  };
  for (const auto dtype : {config::Dtype::fp64, config::Dtype::bf16}) {
    for (const Expected& expected : cases) {
      SCOPED_TRACE(expected.op);
      const auto op = found({.micro_batch = 1, .sequence = 8, .dtype = dtype}, expected.planted)[0];
      ASSERT_TRUE(op.has_value());
      EXPECT_EQ(op->name, expected.op);
      EXPECT_EQ(op->layer, 2);
      EXPECT_EQ(op->chunk, 3);
      EXPECT_EQ(op->micro_batch, 7);
      EXPECT_FALSE(op->communication);
    }
  }
}

// The rank where it began names the op; the others name the message that brought it, later in the same order.
TEST(NonFinite, OtherRanksNameTheCommunication) {
  const Case tp{.micro_batch = 1, .sequence = 8, .tp = 2};
  const auto summed = found(tp, {.weight = &LayerTensors::attention_out, .rank = 1});
  ASSERT_TRUE(summed[0] && summed[1]);
  EXPECT_EQ(summed[1]->name, "attention_out_gemm");
  EXPECT_FALSE(summed[1]->communication);
  EXPECT_EQ(summed[0]->name, "tp_all_reduce");
  EXPECT_TRUE(summed[0]->communication);
  EXPECT_EQ(summed[0]->order, summed[1]->order + 1);

  const Case cp{.micro_batch = 1, .sequence = 8, .cp = 2};
  // In the values: rope and packing come between the product and the message.
  const auto gathered = found(cp, {.weight = &LayerTensors::qkv, .rank = 0, .element = -5});
  ASSERT_TRUE(gathered[0] && gathered[1]);
  EXPECT_EQ(gathered[0]->name, "qkv_gemm");
  EXPECT_EQ(gathered[1]->name, "cp_all_gather");
  EXPECT_TRUE(gathered[1]->communication);
  EXPECT_EQ(gathered[1]->layer, 2);
  EXPECT_EQ(gathered[1]->order, gathered[0]->order + 3);
  // In the queries, which stay: the next layer's keys bring it over.
  const auto next_layer = found(cp, {.weight = &LayerTensors::qkv, .rank = 0});
  ASSERT_TRUE(next_layer[0] && next_layer[1]);
  EXPECT_EQ(next_layer[0]->name, "qkv_gemm");
  EXPECT_EQ(next_layer[1]->name, "cp_all_gather");
  EXPECT_EQ(next_layer[1]->layer, 3);
}

TEST(NonFinite, CheckingAgainForgetsAndOffLooksAtNothing) {
  OpLog log;
  const at::Tensor bad = at::full({2}, infinity, at::kFloat);
  const auto run_op = [&](std::string_view name) {
    OpScope scope(&log, name, {bad});  // an operand is no result
    scope.result(bad);
  };
  run_op("off");
  EXPECT_FALSE(log.first_non_finite());
  log.set_checking(true);
  { const OpScope scope(&log, "operand", {bad}); }
  EXPECT_FALSE(log.first_non_finite());
  run_op("first");
  run_op("second");
  ASSERT_TRUE(log.first_non_finite());
  EXPECT_EQ(log.first_non_finite()->name, "first");
  EXPECT_EQ(log.first_non_finite()->order, 1);
  EXPECT_EQ(log.first_non_finite()->layer, -1);
  log.set_checking(true);
  EXPECT_FALSE(log.first_non_finite());
  {
    OpScope scope(&log, "message", Stream::cp, 8);
    scope.check(bad);
  }
  ASSERT_TRUE(log.first_non_finite());
  EXPECT_TRUE(log.first_non_finite()->communication);
}

}  // namespace
}  // namespace lockstep::nn::test
