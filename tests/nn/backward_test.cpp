// Other ways to the same gradients, bit for bit: recomputation, gathered inputs kept, backward in two halves.
#include <gtest/gtest.h>

#include <algorithm>

#include "chunk.hpp"

namespace lockstep::nn::test {
namespace {

constexpr model::ChunkContent whole_model{0, 3, true, true};

struct Outcome {
  std::vector<double> losses;                      // by rank
  std::vector<std::vector<at::Tensor>> gradients;  // by rank
};

Outcome run(const Case& c, const model::Recompute& recompute, bool halves) {
  Outcome outcome{std::vector<double>(c.ranks()), std::vector<std::vector<at::Tensor>>(c.ranks())};
  run_ranks(c, [&](Context& ctx, OpLog&) {
    Chunk chunk(ctx, c, whole_model, recompute);
    for (int micro_batch = 0; micro_batch < 2; ++micro_batch) {
      chunk.forward();
      if (halves) {
        chunk.backward_input();
        chunk.backward_weight();
      } else {
        chunk.backward();
      }
    }
    outcome.losses[rank_of(ctx)] = chunk.loss();
    outcome.gradients[rank_of(ctx)] = chunk.gradients();
  });
  return outcome;
}

void expect_same(const Outcome& actual, const Outcome& expected) {
  EXPECT_EQ(actual.losses, expected.losses);
  for (size_t i = 0; i < expected.gradients[0].size(); ++i) {
    double largest = 0;  // a rank without rows of the vocabulary has zeros there
    for (size_t rank = 0; rank < expected.gradients.size(); ++rank) {
      const at::Tensor& gradient = expected.gradients[rank][i];
      largest = std::max(largest, gradient.abs().max().item<double>());
      EXPECT_TRUE(at::equal(actual.gradients[rank][i], gradient)) << "rank " << rank << ", tensor " << i;
    }
    EXPECT_GT(largest, 0) << "tensor " << i << " proves nothing";
  }
}

TEST(Backward, RecomputationChangesNoBit) {
  for (const Case& c : chunk_layouts()) {
    const Outcome expected = run(c, {}, false);
    for (const model::Recompute& recompute : recompute_modes()) {
      if (recompute.norm && c.keep_gathered) continue;  // the run file's rules refuse it
      SCOPED_TRACE(describe(c) + describe(recompute));
      expect_same(run(c, recompute, false), expected);
    }
  }
}

TEST(Backward, TwoHalvesChangeNoBit) {
  for (const Case& c : chunk_layouts()) {
    for (const model::Recompute& recompute :
         {model::Recompute{}, model::Recompute{.full = true, .every = 2}}) {
      SCOPED_TRACE(describe(c) + describe(recompute));
      expect_same(run(c, recompute, true), run(c, recompute, false));
    }
  }
}

TEST(Backward, KeptGatheredInputsChangeNoBit) {
  for (Case c : chunk_layouts()) {
    if (!c.sequence_parallel) continue;
    SCOPED_TRACE(describe(c));
    c.keep_gathered = false;
    const Outcome expected = run(c, {}, false);
    c.keep_gathered = true;
    expect_same(run(c, {}, false), expected);
  }
}

// What the larger memory of kept inputs and the smaller one of recomputation come to, so that neither is
// vacuous.
TEST(Backward, ModesHoldDifferentBytes) {
  const Case c{.micro_batch = 1, .sequence = 16, .tp = 2, .sequence_parallel = true};
  Case kept = c;
  kept.keep_gathered = true;
  const auto bytes = [](const Case& of, const model::Recompute& recompute) {
    std::vector<int64_t> of_ranks(of.ranks());
    run_ranks(of, [&](Context& ctx, OpLog&) {
      Chunk chunk(ctx, of, whole_model, recompute);
      chunk.forward();
      of_ranks[rank_of(ctx)] = chunk.activation_bytes();
    });
    return of_ranks[0];
  };
  // Three layers' two inputs and the head's: 16 rows of 16 doubles for 8.
  EXPECT_EQ(bytes(kept, {}) - bytes(c, {}), 7 * 8 * 16 * 8);
  for (const model::Recompute& recompute : recompute_modes()) {
    EXPECT_LT(bytes(c, recompute), bytes(c, {})) << describe(recompute);
  }
}

}  // namespace
}  // namespace lockstep::nn::test
