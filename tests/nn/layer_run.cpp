#include "layer_run.hpp"

#include <gtest/gtest.h>

#include <algorithm>

#include "model/layer_program.hpp"
#include "reference.hpp"

namespace lockstep::nn::test {

namespace {

std::vector<std::pair<const char*, at::Tensor>> tensors_of(const LayerResult& r) {
  const LayerTensors& g = r.gradients;
  return {{"y", r.y},
          {"dx", r.dx},
          {"attention_norm", g.attention_norm},
          {"qkv", g.qkv},
          {"attention_out", g.attention_out},
          {"ffn_norm", g.ffn_norm},
          {"gate_up", g.gate_up},
          {"down", g.down}};
}

}  // namespace

LayerResult run_layer(const Case& c, const LayerTensors& weights, const at::Tensor& x, const at::Tensor& dy,
                      const model::Recompute& recompute) {
  std::vector<at::Tensor> y(c.ranks()), dx(c.ranks());
  std::vector<LayerTensors> gradients(c.ranks());
  run_ranks(c, [&](Context& ctx, OpLog&) {
    const size_t rank = rank_of(ctx);
    const auto compute = [&](const at::Tensor& t) { return t.to(ctx.dtype); };
    const LayerWeights w = map(shard(c, weights, ctx.tp_rank()), compute);
    const TokenPlaces places = places_of(ctx, c);
    LayerActivations kept;
    y[rank] = layer_forward(ctx, w, compute(shard_tokens(ctx, c, x)), places, recompute, kept);
    EXPECT_EQ(kept.bytes(), model::layer_activation_bytes(ctx.shape, recompute));

    LayerGradients after =
        map(w, [&](const at::Tensor& t) { return at::ones(t.sizes(), ctx.gradient_dtype); });
    WeightStash stash;
    dx[rank] = layer_backward_input(ctx, w, std::move(kept), compute(shard_tokens(ctx, c, dy)), places,
                                    recompute, after, stash);
    EXPECT_EQ(kept.bytes(), 0);
    EXPECT_EQ(stash.bytes(), model::layer_stash_bytes(ctx.shape, recompute));
    layer_backward_weight(ctx, w, std::move(stash), recompute, after);
    EXPECT_EQ(stash.bytes(), 0);
    gradients[rank] = map(after, [](const at::Tensor& t) { return t - 1; });
  });
  return {join_tokens(c, y), join_tokens(c, dx), join(c, gradients)};
}

LayerResult reference_run(const Case& c, const LayerTensors& weights, const at::Tensor& x,
                          const at::Tensor& dy) {
  const auto leaf = [](const at::Tensor& t) { return t.clone().requires_grad_(); };
  const LayerTensors w = map(weights, leaf);
  const at::Tensor input = leaf(x);
  const at::Tensor y = reference_layer(c, w, input);
  (y * dy).sum().backward();
  return {y.detach(), input.grad(), map(w, [](const at::Tensor& t) { return t.grad(); })};
}

std::map<std::string, double> errors(const LayerResult& actual, const LayerResult& expected) {
  std::map<std::string, double> result;
  const auto a = tensors_of(actual), e = tensors_of(expected);
  for (size_t i = 0; i < a.size(); ++i) result[a[i].first] = relative_error(a[i].second, e[i].second);
  return result;
}

void expect_autograd(const char* what, const std::vector<Case>& cases) {
  std::map<config::Dtype, double> worst;
  for (const Case& c : cases) {
    SCOPED_TRACE(describe(c));
    const LayerTensors weights = random_layer(c);
    const at::Tensor x = random_tensor(c, {c.tokens(), c.hidden()}, 1.0, 10);
    const at::Tensor dy = random_tensor(c, {c.tokens(), c.hidden()}, 1.0, 11);
    for (const auto& [name, error] : errors(run_layer(c, weights, x, dy), reference_run(c, weights, x, dy))) {
      EXPECT_LE(error, c.tolerance()) << name;
      worst[c.dtype] = std::max(worst[c.dtype], error);
    }
  }
  for (const auto& [dtype, error] : worst) {
    std::printf("%s: worst relative error in %s %.2e, %zu cases in all\n", what,
                at::toString(scalar_type(dtype)), error, cases.size());
  }
}

void expect_bitwise(const LayerResult& actual, const LayerResult& expected) {
  const auto a = tensors_of(actual), e = tensors_of(expected);
  for (size_t i = 0; i < a.size(); ++i) EXPECT_TRUE(at::equal(a[i].second, e[i].second)) << a[i].first;
}

}  // namespace lockstep::nn::test
