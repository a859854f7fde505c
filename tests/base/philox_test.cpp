#include "base/philox.hpp"

#include <gtest/gtest.h>

#include <set>

namespace lockstep {
namespace {

// Vectors of the Random123 distribution, kat_vectors, philox4x32 with 10 rounds.
TEST(Philox, KnownAnswers) {
  EXPECT_EQ(philox4x32({0, 0, 0, 0}, {0, 0}),
            (PhiloxCounter{0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8}));
  constexpr uint32_t ff = 0xffffffff;
  EXPECT_EQ(philox4x32({ff, ff, ff, ff}, {ff, ff}),
            (PhiloxCounter{0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd}));
  EXPECT_EQ(philox4x32({0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344}, {0xa4093822, 0x299f31d0}),
            (PhiloxCounter{0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1}));
}

TEST(Philox, KeysDifferByNameAndSeed) {
  std::set<PhiloxKey> keys;
  for (uint64_t seed = 0; seed < 50; ++seed) {
    for (const char* name : {"", "a", "b", "ab", "ba", "layers.0.wq", "layers.1.wq"}) {
      keys.insert(philox_key(seed, name));
    }
  }
  EXPECT_EQ(keys.size(), 50u * 7u);
}

TEST(Philox, UniformStaysInsideTheOpenInterval) {
  EXPECT_GT(uniform_open(0, 0), 0.0);
  EXPECT_LT(uniform_open(0xffffffff, 0xffffffff), 1.0);
  double sum = 0;
  constexpr uint32_t draws = 20000;
  for (uint32_t i = 0; i < draws; ++i) {
    const PhiloxCounter bits = philox4x32({i, 0, 0, 0}, {1, 2});
    sum += uniform_open(bits[0], bits[1]);
  }
  // Standard error of the mean: sqrt(1/12/20000) = 0.002.
  EXPECT_NEAR(sum / draws, 0.5, 0.01);
}

}  // namespace
}  // namespace lockstep
