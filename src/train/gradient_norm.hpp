// The sums that end a step's backward: the gradient's squares, the loss and the trained tokens, over all
// workers. Each is added up in an order that no number of data-parallel ranks changes, so that the same
// logical replicas give bitwise the same weights on any of them.
#pragma once

#include <functional>
#include <memory>
#include <vector>

#include "train/chunk.hpp"

namespace lockstep::train {

// Over all workers.
struct StepSums {
  double squared_norm = 0;  // of the summed gradient, before division by the tokens and before clipping
  double loss = 0;          // nats, over all trained tokens
  double tokens = 0;        // trained
};

// Adds parts up as sums come in, and over the groups at the end.
class NormSums {
 public:
  NormSums(const parallel::Layout& layout, const Groups& groups);

  // A micro-batch of the logical replica's loss; of the workers of a tensor-parallel group one adds it.
  void add_loss(int64_t replica, double loss);
  void add_tokens(int64_t tokens) { numbers_[0] += static_cast<double>(tokens); }
  // The blocks of a chunk's reduced gradient.
  void add_squares(int chunk, Chunk& state);

  // Numbers to be summed over dp_cp: parallel::norm_numbers of them.
  std::vector<double>& numbers() { return numbers_; }
  // This stage's and tensor-parallel rank's part, once those are summed: squares, loss, tokens.
  std::vector<double> totals() const;

 private:
  const parallel::Layout& layout_;
  const Groups& groups_;
  size_t first_block_;
  std::vector<size_t> chunk_blocks_;  // where each chunk's begin in numbers_ or, with zero = 0, in own_
  std::vector<double> numbers_;       // tokens; losses by replica and rank of cp; blocks unless zero = 0
  std::vector<double> own_;           // blocks with zero = 0: every rank has all of them
};

}  // namespace lockstep::train
