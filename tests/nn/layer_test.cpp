// The transformer layer against autograd of a plain fp64 layer, its memory, and properties of causal
// attention.
#include <gtest/gtest.h>

#include <algorithm>
#include <map>

#include "model/layer_program.hpp"
#include "reference.hpp"

namespace lockstep::nn::test {
namespace {

LayerTensors random_layer(const Case& c) {
  const int64_t h = c.hidden(), width = (c.heads + 2 * c.kv_heads) * c.head_dim;
  const double std = 1.0 / std::sqrt(static_cast<double>(h));
  const at::Tensor ones = at::ones({h}, at::kDouble);
  const auto norm = [&](uint64_t seed) {
    return (ones + random_tensor(c, {h}, 0.2, seed)).to(scalar_type(c.dtype)).to(at::kDouble);
  };
  return {
      norm(1), random_tensor(c, {width, h}, std, 2),     random_tensor(c, {h, c.heads * c.head_dim}, std, 3),
      norm(4), random_tensor(c, {2 * c.ffn, h}, std, 5), random_tensor(c, {h, c.ffn}, std, 6)};
}

struct LayerResult {
  at::Tensor y, dx;
  LayerTensors gradients;
};

LayerResult reference(const Case& c, const LayerTensors& weights, const at::Tensor& x, const at::Tensor& dy) {
  const auto leaf = [](const at::Tensor& t) { return t.clone().requires_grad_(); };
  const LayerTensors w = map(weights, leaf);
  const at::Tensor input = leaf(x);
  const at::Tensor y = reference_layer(c, w, input);
  (y * dy).sum().backward();
  return {y.detach(), input.grad(), map(w, [](const at::Tensor& t) { return t.grad(); })};
}

// Runs the layer on all ranks and joins what they hold. Gradients start from one, to see that they are
// added to.
LayerResult run(const Case& c, const LayerTensors& weights, const at::Tensor& x, const at::Tensor& dy) {
  const auto ranks = static_cast<size_t>(c.tp);
  std::vector<at::Tensor> y(ranks), dx(ranks);
  std::vector<LayerTensors> gradients(ranks);
  run_ranks(c, [&](Context& ctx, OpLog&) {
    const auto rank = static_cast<size_t>(ctx.tp_rank());
    const auto compute = [&](const at::Tensor& t) { return t.to(ctx.dtype); };
    const LayerWeights w = map(shard(c, weights, ctx.tp_rank()), compute);
    LayerActivations kept;
    y[rank] = layer_forward(ctx, w, compute(shard_tokens(c, x, ctx.tp_rank())), kept);
    EXPECT_EQ(kept.bytes(), model::layer_activation_bytes(ctx.shape, {}));

    LayerGradients after =
        map(w, [&](const at::Tensor& t) { return at::ones(t.sizes(), ctx.gradient_dtype); });
    WeightStash stash;
    dx[rank] = layer_backward_input(ctx, w, std::move(kept), compute(shard_tokens(c, dy, ctx.tp_rank())),
                                    after, stash);
    layer_backward_weight(ctx, std::move(stash), after);
    gradients[rank] = map(after, [](const at::Tensor& t) { return t - 1; });
  });
  return {join_tokens(c, y), join_tokens(c, dx), join(c, gradients)};
}

std::map<std::string, double> errors(const LayerResult& actual, const LayerResult& expected) {
  const LayerTensors &a = actual.gradients, &e = expected.gradients;
  return {{"y", relative_error(actual.y, expected.y)},
          {"dx", relative_error(actual.dx, expected.dx)},
          {"attention_norm", relative_error(a.attention_norm, e.attention_norm)},
          {"qkv", relative_error(a.qkv, e.qkv)},
          {"attention_out", relative_error(a.attention_out, e.attention_out)},
          {"ffn_norm", relative_error(a.ffn_norm, e.ffn_norm)},
          {"gate_up", relative_error(a.gate_up, e.gate_up)},
          {"down", relative_error(a.down, e.down)}};
}

TEST(TransformerLayer, MatchesAutograd) {
  std::map<config::Dtype, double> worst;
  for (const Case& c : all_cases()) {
    SCOPED_TRACE(describe(c));
    const LayerTensors weights = random_layer(c);
    const at::Tensor x = random_tensor(c, {c.tokens(), c.hidden()}, 1.0, 10);
    const at::Tensor dy = random_tensor(c, {c.tokens(), c.hidden()}, 1.0, 11);
    for (const auto& [name, error] : errors(run(c, weights, x, dy), reference(c, weights, x, dy))) {
      EXPECT_LE(error, c.tolerance()) << name;
      worst[c.dtype] = std::max(worst[c.dtype], error);
    }
  }
  for (const auto& [dtype, error] : worst) {
    std::printf("layer, worst relative error in %s: %.2e\n", at::toString(scalar_type(dtype)), error);
  }
}

// A second truth that shares nothing with autograd: the loss along a random direction.
TEST(TransformerLayer, MatchesFiniteDifferences) {
  const Case c{.micro_batch = 2, .sequence = 5};
  const at::Tensor dy = random_tensor(c, {c.tokens(), c.hidden()}, 1.0, 21);
  const at::Tensor x = random_tensor(c, {c.tokens(), c.hidden()}, 1.0, 22);
  const LayerTensors weights = random_layer(c);
  const LayerResult result = run(c, weights, x, dy);
  const auto loss = [&](const LayerTensors& w, const at::Tensor& input) {
    double value = 0;
    run_ranks(c, [&](Context& ctx, OpLog&) {
      LayerActivations kept;
      value = (layer_forward(ctx, w, input, kept) * dy).sum().item<double>();
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
    const at::Tensor y = layer_forward(ctx, weights, x, kept);
    EXPECT_LT(relative_error(y.slice(0, 0, 60), y.slice(0, 120, 180)), 1e-14) << "positions restart";
    const at::Tensor moved = (layer_forward(ctx, weights, changed, kept) - y).abs().amax(1);
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
    const LayerResult result = run(c, weights, x, x), expected = reference(c, weights, x, x);
    // Scores of some thousands carry fp32's error of their size into the exponent.
    const double tolerance = dtype == config::Dtype::fp64 ? 1e-9 : 5e-3;
    for (const auto& [name, error] : errors(result, expected)) EXPECT_LE(error, tolerance) << name;
  }
}

TEST(TransformerLayer, FreesWhatBackwardHasUsed) {
  const Case c{.micro_batch = 2, .sequence = 16};
  run_ranks(c, [&](Context& ctx, OpLog&) {
    const LayerWeights weights = random_layer(c);
    LayerGradients gradients = map(weights, [](const at::Tensor& t) { return at::zeros_like(t); });
    LayerActivations kept;
    WeightStash stash;
    const at::Tensor x = random_tensor(c, {c.tokens(), c.hidden()}, 1.0, 51);
    layer_forward(ctx, weights, x, kept);
    const c10::weak_intrusive_ptr<at::TensorImpl> qkv(kept.qkv.getIntrusivePtr());
    const c10::weak_intrusive_ptr<at::TensorImpl> swiglu(kept.swiglu.getIntrusivePtr());
    layer_backward_input(ctx, weights, std::move(kept), x, gradients, stash);
    EXPECT_EQ(kept.bytes(), 0);
    EXPECT_TRUE(qkv.expired());
    EXPECT_FALSE(swiglu.expired());
    layer_backward_weight(ctx, std::move(stash), gradients);
    EXPECT_EQ(stash.bytes(), 0);
    EXPECT_TRUE(swiglu.expired());
  });
}

}  // namespace
}  // namespace lockstep::nn::test
