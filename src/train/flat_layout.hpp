// Where each parameter of a chunk lies in the chunk's flat buffers (weights, gradients, and the rank's share
// of both). Replicated parameters come first, so that their gradients are one contiguous message; the others
// follow in the model's own order, which keeps q, k, v and gate, up adjacent; a tied embedding is a segment
// of its own behind them.
#pragma once

#include <cstdint>
#include <vector>

#include "parallel/layout.hpp"

namespace lockstep::train {

struct FlatEntry {
  model::Parameter parameter;
  int64_t offset = 0;  // elements from the start of the flat buffer
  int64_t count = 0;   // elements on this rank
  int64_t valid = 0;   // of these, the first ones that are the model's; the rest is padding, always zero
  int64_t model_offset = 0;  // first element of the whole parameter, counted over the whole model
  int64_t local_rows = 0;    //
  int64_t local_cols = 0;    //
  int64_t first_row = 0;     // of this rank's part
  int64_t first_col = 0;     //
  bool counts = true;        // whether this rank's copy is the one that norms and hashes count

  // Index in the whole parameter of this rank's element `local`.
  int64_t global_index(int64_t local) const {
    return (first_row + local / local_cols) * parameter.cols + first_col + local % local_cols;
  }
};

struct FlatSegment {
  int64_t offset = 0;  // in the flat buffer
  parallel::Segment sizes;
};

class FlatLayout {
 public:
  FlatLayout(const parallel::Layout& layout, int stage, int chunk, int tp_rank);

  const std::vector<FlatEntry>& entries() const { return entries_; }
  const std::vector<FlatSegment>& segments() const { return segments_; }
  int64_t replicated() const { return replicated_; }  // elements; they lie in [0, replicated)
  int64_t padded() const { return padded_; }  // length of the buffers; what no entry covers stays zero
  // By its whole name; std::logic_error when there is none.
  const FlatEntry& find(const std::string& name) const;

 private:
  std::vector<FlatEntry> entries_;
  std::vector<FlatSegment> segments_;
  int64_t replicated_ = 0;
  int64_t padded_ = 0;
};

}  // namespace lockstep::train
