// A chunk's training state on one rank: of every segment its shard (with zero = 0 all of it), as reduced
// gradient, master weights and optimizer moments. ZeRO: Rajbhandari et al., arXiv:1910.02054.
#pragma once

#include <ATen/ATen.h>

#include <functional>
#include <vector>

#include "nn/context.hpp"
#include "train/flat_layout.hpp"
#include "train/optimizer.hpp"
#include "train/weights_hash.hpp"

namespace lockstep::train {

// Elements [flat, flat + size) of the chunk's flat buffer, which the state holds at [own, own + size).
struct OwnedRange {
  int64_t flat = 0;
  int64_t own = 0;
  int64_t size = 0;
  int64_t block = 1;  // the segment's; `flat` and `size` are whole blocks from the segment's start
  // The shard of this rank alone, which no other rank's shard overlaps: all but with zero = 0.
  int64_t shard_flat = 0;
  int64_t shard_size = 0;
};

class ShardedState {
 public:
  // `initial` [padded], gradient dtype: the whole chunk's weights. `rank` in dp_cp. `flat` and `train`
  // outlive the state.
  ShardedState(const FlatLayout& flat, const config::TrainConfig& train, const at::Tensor& initial, int rank,
               int zero);

  const std::vector<OwnedRange>& ranges() const { return ranges_; }  // one a segment
  int64_t size() const { return master_.numel(); }
  const at::Tensor& master() const { return master_; }                 // [size], gradient dtype
  const std::vector<at::Tensor>& moments() const { return moments_; }  // the same
  // [size], gradient dtype; made and zeroed on first use. May be set to a buffer that holds it already.
  at::Tensor& gradient();
  void set_gradient(at::Tensor gradient) { gradient_ = std::move(gradient); }
  void drop_gradient() { gradient_ = at::Tensor(); }

  // Calls f(block's number in the segment counted from `flat`'s segment start, sum of its squares): the sums
  // of the squares of the gradient, in fp64, block by block. What another rank of tp or another stage counts
  // is left out.
  void squared_blocks(const std::function<void(size_t segment, int64_t block, double sum)>& f);
  void update(const OptimizerStep& step);
  // What no other rank adds.
  void add_to(WeightsHash& hash) const;

 private:
  const FlatLayout& flat_;
  const config::TrainConfig& train_;
  std::vector<OwnedRange> ranges_;
  at::Tensor gradient_, master_;
  std::vector<at::Tensor> moments_;
  std::vector<DecayRange> decay_ranges_;
};

}  // namespace lockstep::train
