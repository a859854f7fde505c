// Embedding and head against autograd, with the vocabulary cut over tensor parallel.
#include <gtest/gtest.h>

#include <algorithm>
#include <map>

#include "base/error.hpp"
#include "model/layer_program.hpp"
#include "nn/embedding.hpp"
#include "nn/head.hpp"
#include "reference.hpp"

namespace lockstep::nn::test {
namespace {

at::Tensor random_tokens(const Case& c, int64_t low, uint64_t seed) {
  at::Generator generator = at::globalContext().defaultGenerator(at::kCPU).clone();
  generator.set_current_seed(seed);
  return at::randint(low, c.vocab, {c.tokens()}, generator, at::kLong);
}

// Beside all cases: vocabularies that tp does not divide, one of which leaves a rank without any row, and
// context parallel.
std::vector<Case> vocabulary_cases() {
  std::vector<Case> cases = all_cases();
  for (const auto dtype : {config::Dtype::fp64, config::Dtype::fp32, config::Dtype::bf16}) {
    for (const int64_t vocab : {5, 251}) {
      for (const int64_t cp : {1, 2}) {
        for (const bool sequence_parallel : {false, true}) {
          cases.push_back({.micro_batch = 2,
                           .sequence = 16,
                           .vocab = vocab,
                           .tp = 4,
                           .cp = cp,
                           .sequence_parallel = sequence_parallel,
                           .keep_gathered = sequence_parallel && cp == 2,
                           .dtype = dtype});
        }
      }
    }
  }
  return cases;
}

TEST(Embedding, MatchesAutograd) {
  for (const Case& c : vocabulary_cases()) {
    SCOPED_TRACE(describe(c));
    const at::Tensor weight = random_tensor(c, {c.vocab, c.hidden()}, 0.1, 1);
    const at::Tensor dy = random_tensor(c, {c.tokens(), c.hidden()}, 1.0, 2);
    const at::Tensor ids = random_tokens(c, 0, 3);
    const at::Tensor leaf = weight.clone().requires_grad_();
    const at::Tensor expected = leaf.index_select(0, ids);
    (expected * dy).sum().backward();

    std::vector<at::Tensor> y(c.ranks()), gradients(c.ranks());
    run_ranks(c, [&](Context& ctx, OpLog&) {
      const size_t rank = rank_of(ctx);
      const at::Tensor w = shard_vocabulary(c, weight, ctx.tp_rank(), 100.0).to(ctx.dtype);
      EmbeddingActivations kept;
      y[rank] = embedding_forward(ctx, w, own_tokens(c, ids, ctx.cp_rank()), kept);
      EXPECT_EQ(kept.bytes(), c.tokens() / c.cp * 8);
      at::Tensor gradient = at::ones(w.sizes(), ctx.gradient_dtype);
      embedding_backward(ctx, std::move(kept), shard_tokens(ctx, c, dy).to(ctx.dtype), gradient);
      gradients[rank] = gradient - 1;
    });
    EXPECT_TRUE(at::equal(join_tokens(c, y).to(at::kDouble), expected.detach())) << "a lookup is exact";
    EXPECT_LE(relative_error(join_vocabulary(c, gradients), leaf.grad()), c.tolerance());
  }
}

struct HeadResult {
  double loss = 0;
  at::Tensor dx;
  HeadTensors gradients;
};

HeadResult reference(const HeadTensors& weights, const at::Tensor& x, const at::Tensor& targets) {
  const auto leaf = [](const at::Tensor& t) { return t.clone().requires_grad_(); };
  const HeadTensors w{leaf(weights.norm), leaf(weights.output)};
  const at::Tensor input = leaf(x);
  const at::Tensor loss = reference_head(w, input, targets);
  loss.backward();
  return {loss.item<double>(), input.grad(), {w.norm.grad(), w.output.grad()}};
}

HeadResult run(const Case& c, const HeadTensors& weights, const at::Tensor& x, const at::Tensor& targets) {
  std::vector<double> losses(c.ranks());
  std::vector<at::Tensor> dx(c.ranks()), norms(c.ranks()), outputs(c.ranks());
  run_ranks(c, [&](Context& ctx, OpLog&) {
    const size_t rank = rank_of(ctx);
    // Padding so large that it would be seen in any maximum or sum.
    const HeadWeights w{weights.norm.to(ctx.dtype),
                        shard_vocabulary(c, weights.output, ctx.tp_rank(), 100.0).to(ctx.dtype)};
    HeadActivations kept;
    losses[rank] = head_forward(ctx, w, shard_tokens(ctx, c, x).to(ctx.dtype),
                                own_tokens(c, targets, ctx.cp_rank()), kept);
    EXPECT_EQ(kept.bytes(), model::chunk_activation_bytes(ctx.shape, {}, {.head = true}));
    // Started from one, to see that they are added to.
    HeadGradients gradients{at::ones(w.norm.sizes(), ctx.gradient_dtype),
                            at::ones(w.output.sizes(), ctx.gradient_dtype)};
    HeadStash stash;
    dx[rank] = head_backward_input(ctx, w, std::move(kept), gradients, stash);
    EXPECT_EQ(kept.bytes(), 0);
    EXPECT_EQ(stash.bytes(), model::chunk_stash_bytes(ctx.shape, {}, {.head = true}));
    head_backward_weight(ctx, std::move(stash), gradients);
    EXPECT_EQ(stash.bytes(), 0);
    norms[rank] = gradients.norm - 1;
    outputs[rank] = gradients.output - 1;
  });
  double loss = 0;  // of all context-parallel ranks' tokens
  for (size_t rank = 0; rank < losses.size(); ++rank) {
    const size_t first_of_tp = rank - rank % static_cast<size_t>(c.tp);
    EXPECT_EQ(losses[rank], losses[first_of_tp]) << "every rank of tp knows the same loss";
    if (rank == first_of_tp) loss += losses[rank];
  }
  return {loss, join_tokens(c, dx), {join_norm_gradients(c, norms), join_vocabulary(c, outputs)}};
}

std::map<std::string, double> errors(const HeadResult& actual, const HeadResult& expected) {
  return {{"loss", std::abs(actual.loss - expected.loss) / expected.loss},
          {"dx", relative_error(actual.dx, expected.dx)},
          {"norm", relative_error(actual.gradients.norm, expected.gradients.norm)},
          {"output", relative_error(actual.gradients.output, expected.gradients.output)}};
}

HeadTensors random_head(const Case& c, double scale) {
  const at::Tensor norm = at::ones({c.hidden()}, at::kDouble) + random_tensor(c, {c.hidden()}, 0.2, 1);
  return {norm.to(scalar_type(c.dtype)).to(at::kDouble), random_tensor(c, {c.vocab, c.hidden()}, scale, 2)};
}

TEST(Head, MatchesAutograd) {
  std::map<config::Dtype, double> worst;
  for (const Case& c : vocabulary_cases()) {
    SCOPED_TRACE(describe(c));
    const HeadTensors weights = random_head(c, 0.3);
    const at::Tensor x = random_tensor(c, {c.tokens(), c.hidden()}, 1.0, 3);
    at::Tensor targets = random_tokens(c, 0, 4);
    targets.slice(0, 1, targets.size(0), 5).fill_(-1);
    for (const auto& [name, error] : errors(run(c, weights, x, targets), reference(weights, x, targets))) {
      EXPECT_LE(error, c.tolerance()) << name;
      worst[c.dtype] = std::max(worst[c.dtype], error);
    }
  }
  for (const auto& [dtype, error] : worst) {
    std::printf("head, worst relative error in %s: %.2e\n", at::toString(scalar_type(dtype)), error);
  }
}

TEST(Head, SurvivesHugeLogits) {
  const Case c{.micro_batch = 2, .sequence = 8, .tp = 2, .dtype = config::Dtype::fp32};
  const HeadTensors weights = random_head(c, 300.0);
  const at::Tensor x = random_tensor(c, {c.tokens(), c.hidden()}, 1.0, 3);
  const at::Tensor targets = random_tokens(c, 0, 4);
  for (const auto& [name, error] : errors(run(c, weights, x, targets), reference(weights, x, targets))) {
    EXPECT_LE(error, 1e-3) << name;
  }
}

TEST(Head, IgnoredPositionsHaveNeitherLossNorGradient) {
  const Case c;
  const HeadTensors weights = random_head(c, 0.3);
  const at::Tensor x = random_tensor(c, {c.tokens(), c.hidden()}, 1.0, 3);
  const HeadResult result = run(c, weights, x, at::full({c.tokens()}, -1, at::kLong));
  EXPECT_EQ(result.loss, 0);
  EXPECT_EQ(result.dx.abs().max().item<double>(), 0);
  EXPECT_EQ(result.gradients.output.abs().max().item<double>(), 0);
}

TEST(Vocabulary, RefusesTokensOutsideIt) {
  const Case c;
  const HeadTensors weights = random_head(c, 0.3);
  run_ranks(c, [&](Context& ctx, OpLog&) {
    EmbeddingActivations kept;
    at::Tensor ids = at::zeros({c.tokens()}, at::kLong);
    ids[3] = c.vocab;
    try {
      embedding_forward(ctx, weights.output, ids, kept);
      FAIL() << "token id beyond the vocabulary went through";
    } catch (const RunError& error) {
      EXPECT_NE(std::string(error.what()).find("token id 32 at position 3"), std::string::npos)
          << error.what();
    }
    ids[3] = -1;
    EXPECT_THROW(embedding_forward(ctx, weights.output, ids, kept), RunError);
    HeadActivations head;
    ids[3] = -2;
    EXPECT_THROW(head_forward(ctx, weights, at::zeros({c.tokens(), c.hidden()}, at::kDouble), ids, head),
                 RunError);
  });
}

}  // namespace
}  // namespace lockstep::nn::test
