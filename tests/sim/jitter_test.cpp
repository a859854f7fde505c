#include "sim/jitter.hpp"

#include <gtest/gtest.h>

#include <cmath>
#include <set>
#include <vector>

namespace lockstep::sim {
namespace {

struct Sample {
  double mean = 0, deviation = 0, lowest = 1e9, highest = 0;
};

Sample sample(const std::vector<double>& values) {
  Sample s;
  for (const double v : values) {
    s.mean += v / static_cast<double>(values.size());
    s.lowest = std::min(s.lowest, v);
    s.highest = std::max(s.highest, v);
  }
  for (const double v : values) s.deviation += (v - s.mean) * (v - s.mean);
  s.deviation = std::sqrt(s.deviation / static_cast<double>(values.size()));
  return s;
}

TEST(Jitter, FactorsHaveMeanOneAndTheWantedDeviation) {
  for (const double wanted : {1e-4, 0.001, 0.02, 0.1, 0.5, 0.95}) {
    const JitterShape shape(wanted);
    std::vector<double> values;
    for (int rank = 0; rank < 400; ++rank) {
      const LaneKey lane = lane_key(1, 0, rank);
      for (uint32_t op = 0; op < 1000; ++op) values.push_back(shape.factor(lane, op_key(op)));
    }
    const Sample s = sample(values);
    EXPECT_NEAR(s.mean, 1, 4 * wanted / std::sqrt(4e5)) << wanted;
    EXPECT_NEAR(s.deviation / wanted, 1, 0.02) << wanted;
    EXPECT_GT(s.lowest, 0) << wanted;
  }
}

// Over all 2^32 draws, by their exact frequencies, not a sample: no step is longer or shorter for its
// jitter's own mean.
TEST(Jitter, TheMeanIsOne) {
  std::vector<double> frequency = {1};
  for (int byte = 0; byte < 4; ++byte) {
    std::vector<double> next(frequency.size() + 255, 0.0);
    for (size_t sum = 0; sum < frequency.size(); ++sum) {
      for (size_t value = 0; value < 256; ++value) next[sum + value] += frequency[sum] / 256;
    }
    frequency = next;
  }
  for (const double wanted : {1e-4, 0.001, 0.02, 0.1, 0.5, 0.95}) {
    const JitterShape shape(wanted);
    double mean = 0, square = 0;
    for (size_t sum = 0; sum < frequency.size(); ++sum) {
      const double factor = shape.of_sum(static_cast<int32_t>(sum));
      mean += frequency[sum] * factor;
      square += frequency[sum] * factor * factor;
    }
    // Draws are floats: 16 factors, each right to 6e-8.
    EXPECT_NEAR(mean, 1, 1e-6) << wanted;
    EXPECT_NEAR(std::sqrt(square - mean * mean) / wanted, 1, 1e-3) << wanted;
  }
}

TEST(Jitter, RefusesWhatFloatsCannotTellApart) {
  EXPECT_THROW(JitterShape(1e-7), std::invalid_argument);
  EXPECT_THROW(JitterShape(5e-324), std::invalid_argument);
  const JitterShape least(JitterShape::least_deviation);
  EXPECT_NE(least.of_sum(0), least.of_sum(1020));
  EXPECT_NEAR(least.of_sum(510), 1, 1e-6);
}

TEST(Jitter, OffIsExactlyOne) {
  const JitterShape shape(0);
  EXPECT_TRUE(shape.off());
  EXPECT_EQ(shape.factor(lane_key(1, 0, 5), op_key(7)), 1.0);
}

TEST(Jitter, RanksAndOpsDrawIndependently) {
  constexpr int ranks = 64;
  constexpr uint32_t ops = 4096;
  std::vector<std::vector<double>> draws(ranks);
  std::set<std::vector<double>> rows;
  for (int rank = 0; rank < ranks; ++rank) {
    const LaneKey lane = lane_key(3, 0, rank);
    for (uint32_t op = 0; op < ops; ++op) {
      draws[static_cast<size_t>(rank)].push_back(byte_sum(jitter_bits(lane, op_key(op))) - 510.0);
    }
    rows.insert(draws[static_cast<size_t>(rank)]);
  }
  EXPECT_EQ(rows.size(), 64u);
  const double variance = 4 * (256.0 * 256.0 - 1) / 12;
  const double limit = 5 / std::sqrt(static_cast<double>(ops));  // five standard errors
  for (size_t a = 0; a < draws.size(); ++a) {
    for (size_t b = a + 1; b < draws.size(); ++b) {
      double between = 0;
      for (size_t i = 0; i < ops; ++i) between += draws[a][i] * draws[b][i];
      EXPECT_LT(std::abs(between / ops / variance), limit) << a << " " << b;
    }
    double next = 0;
    for (size_t i = 0; i + 1 < ops; ++i) next += draws[a][i] * draws[a][i + 1];
    EXPECT_LT(std::abs(next / ops / variance), limit) << a;
  }
}

// A draw that came back for another pair of rank and op would make errors repeat.
TEST(Jitter, BitsHardlyRepeat) {
  std::set<uint32_t> seen;
  int repeats = 0;
  for (int rank = 0; rank < 256; ++rank) {
    for (uint32_t op = 0; op < 256; ++op) {
      repeats += seen.insert(jitter_bits(lane_key(1, 0, rank), op_key(op))).second ? 0 : 1;
    }
  }
  // 65,536 of 2^32: half a repeat expected.
  EXPECT_LE(repeats, 5);
}

TEST(Jitter, RankSpeedsAreLogNormal) {
  std::vector<double> values;
  for (int rank = 0; rank < 100000; ++rank) values.push_back(rank_time_factor(1, rank, 0.1));
  const Sample s = sample(values);
  EXPECT_NEAR(s.mean, 1, 0.0015);
  EXPECT_NEAR(s.deviation, 0.1, 0.001);
  EXPECT_GT(s.highest, 1.4);  // it has a tail
  EXPECT_EQ(rank_time_factor(1, 77, 0.1), values[77]);
  EXPECT_NE(rank_time_factor(2, 77, 0.1), values[77]);
}

}  // namespace
}  // namespace lockstep::sim
