// A chunk's training state, sharded over dp (ZeRO-1): each data-parallel rank owns one slice of the flat
// buffer and holds its reduced gradient, its master weights and AdamW's moments.
#pragma once

#include <ATen/ATen.h>

#include <vector>

#include "nn/context.hpp"
#include "train/adamw.hpp"
#include "train/flat_layout.hpp"
#include "train/weights_hash.hpp"

namespace lockstep::train {

class ShardedState {
 public:
  // `initial` [padded], gradient dtype: the whole chunk's weights. `flat` outlives the state.
  ShardedState(const FlatLayout& flat, const nn::Context& context, const at::Tensor& initial, int dp_rank);

  int64_t begin() const { return begin_; }              // of the slice, in elements of the flat buffer
  int64_t size() const { return master_.numel(); }      //
  at::Tensor& gradient() { return gradient_; }          // [shard], gradient dtype
  const at::Tensor& master() const { return master_; }  // [shard], gradient dtype
  at::Tensor& moment1() { return moment1_; }
  at::Tensor& moment2() { return moment2_; }

  // Sum of the squares of the slice's gradient, in fp64; what every tensor-parallel rank holds counts on the
  // first one alone.
  double squared_norm() const;
  void adamw(const config::TrainConfig& train, const AdamStep& step);
  void add_to(WeightsHash& hash) const;

 private:
  bool counts_replicated() const { return tp_rank_ == 0; }

  const FlatLayout& flat_;
  int64_t begin_;
  int64_t tp_rank_;
  at::Tensor gradient_, master_, moment1_, moment2_;
  std::vector<DecayRange> ranges_;
};

}  // namespace lockstep::train
