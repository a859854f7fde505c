// Philox4x32-10, a counter-based random number generator: the same (key, counter) gives the same bits
// anywhere, in any order. Source: Salmon, Moraes, Dror, Shaw, "Parallel Random Numbers: As Easy as 1, 2, 3",
// SC'11, doi:10.1145/2063384.2063405; held against their known-answer vectors in tests/base.
#pragma once

#include <array>
#include <cstdint>
#include <string_view>

namespace lockstep {

using PhiloxCounter = std::array<uint32_t, 4>;
using PhiloxKey = std::array<uint32_t, 2>;

inline PhiloxCounter philox4x32(PhiloxCounter counter, PhiloxKey key) {
  for (int round = 0; round < 10; ++round) {
    const uint64_t product0 = uint64_t{0xD2511F53u} * counter[0];
    const uint64_t product1 = uint64_t{0xCD9E8D57u} * counter[2];
    counter = {static_cast<uint32_t>(product1 >> 32) ^ counter[1] ^ key[0], static_cast<uint32_t>(product1),
               static_cast<uint32_t>(product0 >> 32) ^ counter[3] ^ key[1], static_cast<uint32_t>(product0)};
    key = {key[0] + 0x9E3779B9u, key[1] + 0xBB67AE85u};
  }
  return counter;
}

// A key for a named stream of numbers: FNV-1a of the name, mixed with the seed.
inline PhiloxKey philox_key(uint64_t seed, std::string_view name) {
  uint64_t hash = 0xCBF29CE484222325u;
  for (const char c : name) hash = (hash ^ static_cast<unsigned char>(c)) * 0x100000001B3u;
  hash ^= seed * 0x9E3779B97F4A7C15u;
  return {static_cast<uint32_t>(hash), static_cast<uint32_t>(hash >> 32)};
}

// Uniform in the open interval (0, 1), 52 bits: never 0 or 1.
inline double uniform_open(uint32_t high, uint32_t low) {
  const uint64_t bits = (uint64_t{high} << 32 | low) >> 12;  // 52 bits, so that adding a half stays exact
  return (static_cast<double>(bits) + 0.5) * 0x1p-52;
}

}  // namespace lockstep
