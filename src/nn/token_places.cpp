#include "nn/token_places.hpp"

#include <string>

#include "base/error.hpp"
#include "nn/context.hpp"

namespace lockstep::nn {

namespace {

at::Tensor own_places(const model::ShardShape& s, int64_t cp_rank) {
  at::Tensor one = at::arange(s.sequence, at::kLong);
  if (s.cp > 1) {
    const auto chunks = one.chunk(2 * s.cp);
    one =
        at::cat({chunks[static_cast<size_t>(cp_rank)], chunks[static_cast<size_t>(2 * s.cp - 1 - cp_rank)]});
  }
  return one.repeat({s.tokens_all() / s.sequence});
}

[[noreturn]] void refuse(int64_t row, int64_t start, const std::string& why) {
  throw RunError("the document of token " + std::to_string(row) + " of the micro-batch begins at " +
                 std::to_string(start) + " of its sequence, " + why);
}

void check_starts(const model::ShardShape& s, const at::Tensor& starts, const at::Tensor& own_key) {
  if (starts.scalar_type() != at::kLong || starts.numel() != s.tokens) {
    throw RunError("document starts must be " + std::to_string(s.tokens) + " int64, one a token; there are " +
                   std::to_string(starts.numel()) + " of type " + at::toString(starts.scalar_type()));
  }
  const auto* const start = starts.data_ptr<int64_t>();
  const auto* const own = own_key.data_ptr<int64_t>();
  const int64_t a_sequence = s.sequence / s.cp;
  for (int64_t row = 0; row < s.tokens; ++row) {
    if (start[row] < 0) refuse(row, start[row], "before it");
    if (start[row] > own[row]) refuse(row, start[row], "behind the token's own " + std::to_string(own[row]));
    if (row % a_sequence != 0 && start[row] < start[row - 1]) {
      refuse(row, start[row], "before that of the token ahead, " + std::to_string(start[row - 1]));
    }
  }
}

}  // namespace

TokenPlaces token_places(const model::ShardShape& shape, int64_t cp_rank) {
  const at::Tensor own = own_places(shape, cp_rank);
  return {own, at::zeros_like(own), own};
}

TokenPlaces token_places(const Context& ctx, const at::Tensor& document_starts) {
  if (!document_starts.defined()) return ctx.places;
  const at::Tensor starts = document_starts.contiguous();
  check_starts(ctx.shape, starts, ctx.places.own_key);
  return {ctx.places.own_key - starts, starts, ctx.places.own_key};
}

}  // namespace lockstep::nn
