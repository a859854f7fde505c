#include "train/initial_weights.hpp"

#include <array>
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

// Numbers of one parameter; keeps the last pair, since neighbours are asked for in turn.
class Normal {
 public:
  explicit Normal(const PhiloxKey& key) : key_(key), pair_(normal_pair(key, 0)) {}
  double operator()(int64_t index) {
    const auto i = static_cast<uint64_t>(index);
    if (i / 2 != held_) pair_ = normal_pair(key_, held_ = i / 2);
    return pair_[i % 2];
  }

 private:
  PhiloxKey key_;
  uint64_t held_ = 0;
  std::array<double, 2> pair_;
};

}  // namespace

double initial_normal(uint64_t seed, std::string_view name, int64_t index) {
  return Normal(philox_key(seed, name))(index);
}

at::Tensor initial_weights(const FlatLayout& flat, uint64_t seed, at::ScalarType type) {
  at::Tensor weights = at::zeros({flat.padded()}, at::kDouble);
  auto* const values = weights.data_ptr<double>();
  for (const FlatEntry& entry : flat.entries()) {
    const double std = entry.parameter.init_std;
    Normal normal(philox_key(seed, entry.parameter.name));
    for (int64_t i = 0; i < entry.valid; ++i) {
      values[entry.offset + i] = std == 0 ? 1.0 : std * normal(entry.global_index(i));
    }
  }
  return weights.to(type);
}

}  // namespace lockstep::train
