#include "train/initial_weights.hpp"

#include <algorithm>
#include <cmath>
#include <numbers>

#include "base/philox.hpp"

namespace lockstep::train {

namespace {

// Elements 2 pair and 2 pair + 1. Box and Muller 1958, doi:10.1214/aoms/1177706645.
std::array<double, 2> normal_pair(const PhiloxKey& key, uint64_t pair) {
  const auto bits = philox4x32({static_cast<uint32_t>(pair), static_cast<uint32_t>(pair >> 32), 0, 0}, key);
  const double radius = std::sqrt(-2.0 * std::log(uniform_open(bits[0], bits[1])));
  const double angle = 2.0 * std::numbers::pi * uniform_open(bits[2], bits[3]);
  return {radius * std::cos(angle), radius * std::sin(angle)};
}

double element(const PhiloxKey& key, int64_t index) {
  const auto i = static_cast<uint64_t>(index);
  return normal_pair(key, i / 2)[i % 2];
}

}  // namespace

double initial_normal(uint64_t seed, std::string_view name, int64_t index) {
  return element(philox_key(seed, name), index);
}

void fill_initial_weights(const FlatLayout& flat, uint64_t seed, int64_t begin, std::span<double> values) {
  std::fill(values.begin(), values.end(), 0.0);
  const int64_t end = begin + static_cast<int64_t>(values.size());
  for (const FlatEntry& entry : flat.entries()) {
    const int64_t first = std::max(begin, entry.offset);
    const int64_t last = std::min(end, entry.offset + entry.count);
    const double std = entry.parameter.init_std;
    const PhiloxKey key = philox_key(seed, entry.parameter.name);
    for (int64_t i = first; i < last; ++i) {
      double& value = values[static_cast<size_t>(i - begin)];
      value = std == 0 ? 1.0 : std * element(key, entry.global_index(i - entry.offset));
    }
  }
}

}  // namespace lockstep::train
