// Where tokens stand: context parallel's zigzag, documents, and what is refused.
#include <gtest/gtest.h>

#include "base/error.hpp"
#include "harness.hpp"

namespace lockstep::nn::test {
namespace {

std::vector<int64_t> values(const at::Tensor& t) {
  return {t.data_ptr<int64_t>(), t.data_ptr<int64_t>() + t.numel()};
}
using Places = std::vector<int64_t>;

TEST(TokenPlaces, RankHoldsAnEarlyAndALateChunk) {
  const Case c{.micro_batch = 2, .sequence = 12, .cp = 3};
  const model::ShardShape s = c.shape();
  EXPECT_EQ(values(token_places(s, 0).own_key), (Places{0, 1, 10, 11, 0, 1, 10, 11}));
  EXPECT_EQ(values(token_places(s, 1).own_key), (Places{2, 3, 8, 9, 2, 3, 8, 9}));
  EXPECT_EQ(values(token_places(s, 2).own_key), (Places{4, 5, 6, 7, 4, 5, 6, 7}));
  EXPECT_EQ(values(token_places(s, 2).position), values(token_places(s, 2).own_key));
  EXPECT_EQ(values(token_places(s, 2).first_key), Places(8, 0));
}

TEST(TokenPlaces, DocumentsBeginBeforeTheChunkAndPositionsRestart) {
  const Case c{.micro_batch = 1, .sequence = 8, .cp = 2};
  run_ranks(c, [&](Context& ctx, OpLog&) {
    if (ctx.cp_rank() != 1) return;  // holds 2 .. 5
    const TokenPlaces places = token_places(ctx, at::tensor(Places{1, 1, 1, 5}));
    EXPECT_EQ(values(places.own_key), (Places{2, 3, 4, 5}));
    EXPECT_EQ(values(places.first_key), (Places{1, 1, 1, 5}));
    EXPECT_EQ(values(places.position), (Places{1, 2, 3, 0}));
    EXPECT_EQ(values(token_places(ctx, {}).first_key), Places(4, 0));
  });
}

TEST(TokenPlaces, RefusesImpossibleDocuments) {
  const Case c{.micro_batch = 2, .sequence = 3};
  run_ranks(c, [&](Context& ctx, OpLog&) {
    EXPECT_NO_THROW(token_places(ctx, at::tensor(Places{0, 1, 2, 0, 0, 0})));
    EXPECT_THROW(token_places(ctx, at::tensor(Places{0, 2, 2, 0, 0, 0})), RunError);   // behind its token
    EXPECT_THROW(token_places(ctx, at::tensor(Places{0, 1, 0, 0, 0, 0})), RunError);   // goes back
    EXPECT_THROW(token_places(ctx, at::tensor(Places{0, -1, 0, 0, 0, 0})), RunError);  // before the sequence
    EXPECT_THROW(token_places(ctx, at::tensor(Places{0, 0, 0})), RunError);            // too few
    EXPECT_THROW(token_places(ctx, at::zeros({6})), RunError);                         // not integers
  });
}

}  // namespace
}  // namespace lockstep::nn::test
