#include "train/gradient_norm.hpp"

#include "parallel/step_ops.hpp"

namespace lockstep::train {

NormSums::NormSums(const parallel::Layout& layout, const Groups& groups)
    : layout_(layout),
      groups_(groups),
      first_block_(
          static_cast<size_t>(1 + layout.run().parallel.logical_replicas() * layout.run().parallel.cp)),
      numbers_(static_cast<size_t>(parallel::norm_numbers(layout, groups.at.pp)), 0.0) {
  const bool whole = layout.zero() == 0;
  size_t next = whole ? 0 : first_block_;
  for (int c = 0; c < layout.virtual_stages(); ++c) {
    chunk_blocks_.push_back(next);
    for (const parallel::Segment& s : layout.segments(groups.at.pp, c))
      next += static_cast<size_t>(s.blocks());
  }
  if (whole) own_.assign(next, 0.0);
}

void NormSums::add_loss(int64_t replica, double loss) {
  const auto cp = static_cast<size_t>(layout_.run().parallel.cp);
  numbers_[1 + static_cast<size_t>(replica) * cp + static_cast<size_t>(groups_.at.cp)] += loss;
}

void NormSums::add_squares(int chunk, Chunk& state) {
  const auto segments = layout_.segments(groups_.at.pp, chunk);
  std::vector<double>& to = layout_.zero() == 0 ? own_ : numbers_;
  std::vector<size_t> begins{chunk_blocks_[static_cast<size_t>(chunk)]};
  for (const parallel::Segment& s : segments)
    begins.push_back(begins.back() + static_cast<size_t>(s.blocks()));
  state.state().squared_blocks([&](size_t segment, int64_t block, double sum) {
    if (block < segments[segment].blocks()) to[begins[segment] + static_cast<size_t>(block)] = sum;
  });
}

std::vector<double> NormSums::totals() const {
  double squares = 0, loss = 0;
  for (size_t i = 1; i < first_block_; ++i) loss += numbers_[i];
  for (size_t i = first_block_; i < numbers_.size(); ++i) squares += numbers_[i];
  for (const double sum : own_) squares += sum;
  return {squares, loss, numbers_[0]};
}

}  // namespace lockstep::train
