// A 128-bit hash of the master weights that no layout changes: the sum, modulo 2^64, of a mix of every
// element's place in the model and its bits. Ranks add what they hold; the sums of all ranks are the hash.
#pragma once

#include <array>
#include <cstdint>

namespace lockstep::train {

using WeightsHash = std::array<uint64_t, 2>;

// splitmix64's finalizer (Steele, Lea, Flood 2014, doi:10.1145/2660193.2660195).
constexpr uint64_t mix64(uint64_t x) {
  x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9u;
  x = (x ^ (x >> 27)) * 0x94D049BB133111EBu;
  return x ^ (x >> 31);
}

// Adds one element: its index counted over the whole model in its own order, and its bits.
constexpr void add_element(WeightsHash& hash, uint64_t model_index, uint64_t bits) {
  const uint64_t place = mix64(model_index + 0x9E3779B97F4A7C15u);
  hash[0] += mix64(place ^ bits);
  hash[1] += mix64(mix64(place + 0xD1B54A32D192ED03u) ^ bits);
}

}  // namespace lockstep::train
