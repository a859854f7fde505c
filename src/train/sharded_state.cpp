#include "train/sharded_state.hpp"

#include <algorithm>
#include <array>
#include <bit>

namespace lockstep::train {

namespace {

template <typename T>
std::span<T> values(const at::Tensor& tensor) {
  return {tensor.data_ptr<T>(), static_cast<size_t>(tensor.numel())};
}

// Eight running sums, so that the loop vectorises; always added up in the same order.
template <typename T>
double sum_of_squares(std::span<const T> x) {
  std::array<double, 8> sums{};
  size_t i = 0;
  for (; i + 8 <= x.size(); i += 8) {
    for (size_t j = 0; j < 8; ++j) sums[j] += static_cast<double>(x[i + j]) * static_cast<double>(x[i + j]);
  }
  double total = 0;
  for (const double sum : sums) total += sum;
  for (; i < x.size(); ++i) total += static_cast<double>(x[i]) * static_cast<double>(x[i]);
  return total;
}

std::vector<DecayRange> decay_ranges(const FlatLayout& flat, int64_t begin) {
  std::vector<DecayRange> ranges;
  const int64_t end = begin + flat.shard();
  for (const FlatEntry& entry : flat.entries()) {
    const int64_t first = std::max(begin, entry.offset);
    const int64_t last = std::min(end, entry.offset + entry.count);
    if (first < last) ranges.push_back({first - begin, last - begin, entry.parameter.decay});
  }
  return ranges;
}

template <typename T, typename Bits>
void add_elements(const FlatLayout& flat, int64_t begin, int64_t first_counted, std::span<const T> master,
                  WeightsHash& hash) {
  const int64_t end = begin + static_cast<int64_t>(master.size());
  for (const FlatEntry& entry : flat.entries()) {
    const int64_t first = std::max({begin, entry.offset, first_counted});
    const int64_t last = std::min(end, entry.offset + entry.count);
    for (int64_t i = first; i < last; ++i) {
      const auto index = static_cast<uint64_t>(entry.model_offset + entry.global_index(i - entry.offset));
      add_element(hash, index, std::bit_cast<Bits>(master[static_cast<size_t>(i - begin)]));
    }
  }
}

}  // namespace

ShardedState::ShardedState(const FlatLayout& flat, const nn::Context& context, const at::Tensor& initial,
                           int dp_rank)
    : flat_(flat),
      begin_(dp_rank * flat.shard()),
      tp_rank_(context.tp_rank()),
      ranges_(decay_ranges(flat, begin_)) {
  master_ = initial.narrow(0, begin_, flat.shard()).clone();
  gradient_ = at::zeros({flat.shard()}, context.gradient_dtype);
  moment1_ = at::zeros_like(gradient_);
  moment2_ = at::zeros_like(gradient_);
}

double ShardedState::squared_norm() const {
  const int64_t skip =
      counts_replicated() ? 0 : std::clamp<int64_t>(flat_.replicated() - begin_, 0, flat_.shard());
  const at::Tensor counted = gradient_.narrow(0, skip, flat_.shard() - skip);
  return counted.scalar_type() == at::kDouble ? sum_of_squares<double>(values<double>(counted))
                                              : sum_of_squares<float>(values<float>(counted));
}

void ShardedState::adamw(const config::TrainConfig& train, const AdamStep& step) {
  const auto update = [&]<typename T>(T) {
    adamw_step<T>(train, step, ranges_, values<T>(gradient_), values<T>(master_), values<T>(moment1_),
                  values<T>(moment2_));
  };
  if (master_.scalar_type() == at::kDouble) {
    update(double{});
  } else {
    update(float{});
  }
}

void ShardedState::add_to(WeightsHash& hash) const {
  const int64_t first_counted = counts_replicated() ? 0 : flat_.replicated();
  if (master_.scalar_type() == at::kDouble) {
    add_elements<double, uint64_t>(flat_, begin_, first_counted, values<double>(master_), hash);
  } else {
    add_elements<float, uint32_t>(flat_, begin_, first_counted, values<float>(master_), hash);
  }
}

}  // namespace lockstep::train
