// The transformer layer against autograd of a plain fp64 layer, its memory, and properties of causal
// attention.
#include <gtest/gtest.h>

#include "layer_run.hpp"
#include "reference.hpp"

namespace lockstep::nn::test {
namespace {

TEST(TransformerLayer, MatchesAutograd) { expect_autograd("layer", all_cases()); }

TEST(TransformerLayer, MasksDocumentsAsAutogradDoes) { expect_autograd("document mask", masked_cases()); }

TEST(TransformerLayer, MatchesAutogradWithContextParallel) {
  expect_autograd("context parallel", cut_cases());
}

// Copies of key and value heads: their gradients' sum is the whole gradient.
TEST(TransformerLayer, MatchesAutogradWithFewerKeyHeadsThanRanks) {
  std::vector<Case> cases;
  for (const auto dtype : {config::Dtype::fp64, config::Dtype::fp32, config::Dtype::bf16}) {
    for (const bool sequence_parallel : {false, true}) {
      for (const int64_t kv_heads : {1, 2}) {
        for (const int64_t cp : {1, 2}) {
          cases.push_back({.micro_batch = 2,
                           .sequence = 32,
                           .heads = 8,
                           .kv_heads = kv_heads,
                           .tp = 4,
                           .cp = cp,
                           .sequence_parallel = sequence_parallel,
                           .dtype = dtype});
        }
      }
    }
  }
  expect_autograd("copied key heads", cases);
}

// A second truth that shares nothing with autograd: the loss along a random direction.
TEST(TransformerLayer, MatchesFiniteDifferences) {
  const Case c{.micro_batch = 2, .sequence = 5};
  const at::Tensor dy = random_tensor(c, {c.tokens(), c.hidden()}, 1.0, 21);
  const at::Tensor x = random_tensor(c, {c.tokens(), c.hidden()}, 1.0, 22);
  const LayerTensors weights = random_layer(c);
  const LayerResult result = run_layer(c, weights, x, dy);
  const auto loss = [&](const LayerTensors& w, const at::Tensor& input) {
    double value = 0;
    run_ranks(c, [&](Context& ctx, OpLog&) {
      LayerActivations kept;
      value = (layer_forward(ctx, w, input, ctx.places, {}, kept) * dy).sum().item<double>();
    });
    return value;
  };
  constexpr double step = 1e-5;
  const auto check = [&](const char* name, const at::Tensor& gradient, auto moved) {
    const at::Tensor direction = at::randn(gradient.sizes(), at::kDouble);
    const double measured = (moved(direction * step) - moved(direction * -step)) / (2 * step);
    const double stated = (gradient * direction).sum().item<double>();
    EXPECT_NEAR(measured, stated, 1e-6 * (std::abs(stated) + 1)) << name;
  };
  check("x", result.dx, [&](const at::Tensor& by) { return loss(weights, x + by); });
  const std::pair<const char*, at::Tensor LayerTensors::*> members[] = {
      {"attention_norm", &LayerTensors::attention_norm},
      {"qkv", &LayerTensors::qkv},
      {"attention_out", &LayerTensors::attention_out},
      {"ffn_norm", &LayerTensors::ffn_norm},
      {"gate_up", &LayerTensors::gate_up},
      {"down", &LayerTensors::down}};
  for (const auto& [name, member] : members) {
    check(name, result.gradients.*member, [&, m = member](const at::Tensor& by) {
      LayerTensors moved = weights;
      moved.*m = moved.*m + by;
      return loss(moved, x);
    });
  }
}

TEST(TransformerLayer, SeesNoLaterTokenAndNoOtherSequence) {
  const Case c{.micro_batch = 3, .sequence = 60};
  const LayerTensors weights = random_layer(c);
  const at::Tensor one = random_tensor(c, {c.sequence, c.hidden()}, 1.0, 31);
  const at::Tensor x = at::cat({one, one, one});
  at::Tensor changed = x.clone();
  constexpr int64_t row = 60 + 50;  // position 50 of the second sequence
  changed[row] += 1.0;
  run_ranks(c, [&](Context& ctx, OpLog&) {
    LayerActivations kept;
    const at::Tensor y = layer_forward(ctx, weights, x, ctx.places, {}, kept);
    EXPECT_LT(relative_error(y.slice(0, 0, 60), y.slice(0, 120, 180)), 1e-14) << "positions restart";
    const at::Tensor moved = (layer_forward(ctx, weights, changed, ctx.places, {}, kept) - y).abs().amax(1);
    EXPECT_LT(moved.slice(0, 0, row).max().item<double>(), 1e-13);
    EXPECT_GT(moved.slice(0, row, 120).min().item<double>(), 1e-6);
    EXPECT_LT(moved.slice(0, 120, 180).max().item<double>(), 1e-13);
  });
}

// Scores far beyond exp's range: the softmax must not overflow, forward or backward.
TEST(TransformerLayer, SurvivesHugeScores) {
  for (const auto dtype : {config::Dtype::fp32, config::Dtype::fp64}) {
    const Case c{.micro_batch = 1, .sequence = 20, .dtype = dtype};
    LayerTensors weights = random_layer(c);
    weights.qkv = weights.qkv * 64;
    const at::Tensor x = random_tensor(c, {c.tokens(), c.hidden()}, 1.0, 41);
    const LayerResult result = run_layer(c, weights, x, x), expected = reference_run(c, weights, x, x);
    // Scores of some thousands carry fp32's error of their size into the exponent.
    const double tolerance = dtype == config::Dtype::fp64 ? 1e-9 : 5e-3;
    for (const auto& [name, error] : errors(result, expected)) EXPECT_LE(error, tolerance) << name;
  }
}

using Weak = c10::weak_intrusive_ptr<at::TensorImpl>;

TEST(TransformerLayer, FreesWhatBackwardHasUsed) {
  const Case c{.micro_batch = 2, .sequence = 16};
  run_ranks(c, [&](Context& ctx, OpLog&) {
    const LayerWeights weights = random_layer(c);
    LayerGradients gradients = map(weights, [](const at::Tensor& t) { return at::zeros_like(t); });
    LayerActivations kept;
    WeightStash stash;
    const at::Tensor x = random_tensor(c, {c.tokens(), c.hidden()}, 1.0, 51);
    layer_forward(ctx, weights, x, ctx.places, {}, kept);
    const Weak qkv(kept.qkv.getIntrusivePtr()), gate_up(kept.gate_up.getIntrusivePtr());
    const Weak swiglu(kept.swiglu.getIntrusivePtr());
    layer_backward_input(ctx, weights, std::move(kept), x, ctx.places, {}, gradients, stash);
    EXPECT_EQ(kept.bytes(), 0);
    EXPECT_TRUE(qkv.expired());
    EXPECT_TRUE(gate_up.expired());
    EXPECT_FALSE(swiglu.expired());
    layer_backward_weight(ctx, weights, std::move(stash), {}, gradients);
    EXPECT_EQ(stash.bytes(), 0);
    EXPECT_TRUE(swiglu.expired());
  });
}

}  // namespace
}  // namespace lockstep::nn::test
