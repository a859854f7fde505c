#include "train/sharded_state.hpp"

#include <algorithm>
#include <bit>

#include "config/optimizer_state.hpp"

namespace lockstep::train {

namespace {

template <typename T>
std::span<T> values(const at::Tensor& tensor) {
  return {tensor.data_ptr<T>(), static_cast<size_t>(tensor.numel())};
}

std::vector<OwnedRange> owned_ranges(const FlatLayout& flat, int rank, int zero) {
  std::vector<OwnedRange> ranges;
  int64_t own = 0;
  for (const FlatSegment& segment : flat.segments()) {
    const parallel::Segment& s = segment.sizes;
    const int64_t shard = segment.offset + rank * s.shard;
    ranges.push_back(zero == 0 ? OwnedRange{segment.offset, own, s.padded(), s.block, shard, s.shard}
                               : OwnedRange{shard, own, s.shard, s.block, shard, s.shard});
    own += ranges.back().size;
  }
  return ranges;
}

// Calls f(entry, first, last) for every entry's part [first, last) of the flat range [begin, end).
template <class F>
void for_entries(const FlatLayout& flat, int64_t begin, int64_t end, F f) {
  for (const FlatEntry& entry : flat.entries()) {
    const int64_t first = std::max(begin, entry.offset);
    const int64_t last = std::min(end, entry.offset + entry.count);
    if (first < last) f(entry, first, last);
  }
}

// Eight running sums, so that the loop vectorises; always added up in the same order.
template <typename T>
double sum_of_squares(const T* x, int64_t count) {
  double sums[8] = {};
  int64_t i = 0;
  for (; i + 8 <= count; i += 8) {
    for (int64_t j = 0; j < 8; ++j) sums[j] += static_cast<double>(x[i + j]) * static_cast<double>(x[i + j]);
  }
  double total = 0;
  for (const double sum : sums) total += sum;
  for (; i < count; ++i) total += static_cast<double>(x[i]) * static_cast<double>(x[i]);
  return total;
}

// Of one flat range that this rank owns. A block is summed entry by entry, so that what is left out (another
// rank's to count) does not move the others.
template <typename T>
void add_squares(const FlatLayout& flat, const OwnedRange& range, int64_t segment_offset, const T* gradient,
                 std::vector<double>& blocks) {
  for_entries(flat, range.flat, range.flat + range.size,
              [&](const FlatEntry& entry, int64_t first, int64_t last) {
                if (!entry.counts) return;
                while (first < last) {
                  const int64_t block = (first - segment_offset) / range.block;
                  const int64_t end = std::min(last, segment_offset + (block + 1) * range.block);
                  const auto at = static_cast<size_t>(block - (range.flat - segment_offset) / range.block);
                  blocks[at] += sum_of_squares(gradient + (first - range.flat), end - first);
                  first = end;
                }
              });
}

template <typename T, typename Bits>
void add_elements(const FlatLayout& flat, const OwnedRange& range, const T* master, WeightsHash& hash) {
  const int64_t begin = range.shard_flat, end = begin + range.shard_size;
  for_entries(flat, begin, end, [&](const FlatEntry& entry, int64_t first, int64_t last) {
    if (!entry.counts) return;
    last = std::min(last, entry.offset + entry.valid);
    for (int64_t i = first; i < last; ++i) {
      const auto index = static_cast<uint64_t>(entry.model_offset + entry.global_index(i - entry.offset));
      add_element(hash, index, std::bit_cast<Bits>(master[i - range.flat]));
    }
  });
}

}  // namespace

ShardedState::ShardedState(const FlatLayout& flat, const config::TrainConfig& train,
                           const at::Tensor& initial, int rank, int zero)
    : flat_(flat), train_(train), ranges_(owned_ranges(flat, rank, zero)) {
  std::vector<at::Tensor> parts;
  for (const OwnedRange& range : ranges_) {
    parts.push_back(initial.narrow(0, range.flat, range.size));
    for_entries(flat, range.flat, range.flat + range.size,
                [&](const FlatEntry& entry, int64_t first, int64_t last) {
                  decay_ranges_.push_back({first - range.flat + range.own, last - range.flat + range.own,
                                           decays(train, entry.parameter.family)});
                });
  }
  master_ = parts.empty() ? at::empty({0}, initial.options()) : at::cat(parts);
  for (int64_t i = 0; i < config::optimizer_moments(train); ++i) moments_.push_back(at::zeros_like(master_));
}

at::Tensor& ShardedState::gradient() {
  if (!gradient_.defined()) gradient_ = at::zeros_like(master_);
  return gradient_;
}

void ShardedState::squared_blocks(const std::function<void(size_t segment, int64_t block, double sum)>& f) {
  const at::Tensor& gradient = this->gradient();
  for (size_t i = 0; i < ranges_.size(); ++i) {
    const OwnedRange& range = ranges_[i];
    const int64_t offset = flat_.segments()[i].offset;
    std::vector<double> blocks(static_cast<size_t>(range.size / range.block), 0.0);
    if (gradient.scalar_type() == at::kDouble) {
      add_squares(flat_, range, offset, gradient.data_ptr<double>() + range.own, blocks);
    } else {
      add_squares(flat_, range, offset, gradient.data_ptr<float>() + range.own, blocks);
    }
    const int64_t first = (range.flat - offset) / range.block;
    for (size_t b = 0; b < blocks.size(); ++b) f(i, first + static_cast<int64_t>(b), blocks[b]);
  }
}

void ShardedState::update(const OptimizerStep& step) {
  const auto run = [&]<typename T>(T) {
    std::vector<std::span<T>> moments;
    for (const at::Tensor& moment : moments_) moments.push_back(values<T>(moment));
    optimizer_step<T>(train_, step, decay_ranges_, values<T>(gradient()), values<T>(master_), moments);
  };
  if (master_.scalar_type() == at::kDouble) {
    run(double{});
  } else {
    run(float{});
  }
}

void ShardedState::add_to(WeightsHash& hash) const {
  for (const OwnedRange& range : ranges_) {
    if (master_.scalar_type() == at::kDouble) {
      add_elements<double, uint64_t>(flat_, range, master_.data_ptr<double>() + range.own, hash);
    } else {
      add_elements<float, uint32_t>(flat_, range, master_.data_ptr<float>() + range.own, hash);
    }
  }
}

}  // namespace lockstep::train
