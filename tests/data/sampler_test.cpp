// Sample order: each window once an epoch, whatever asks for it.
#include "data/sampler.hpp"

#include <gtest/gtest.h>
#include <rapidcheck.h>

#include <algorithm>
#include <cmath>
#include <numeric>
#include <set>

#include "base/error.hpp"

namespace lockstep::data {
namespace {

std::vector<uint64_t> image(const KeyedPermutation& permutation, uint64_t size) {
  std::vector<uint64_t> values;
  for (uint64_t i = 0; i < size; ++i) values.push_back(permutation(i));
  return values;
}

std::vector<uint64_t> upto(uint64_t size) {
  std::vector<uint64_t> values(size);
  std::iota(values.begin(), values.end(), 0u);
  return values;
}

TokenStream counting_stream(int64_t tokens) {
  TokenStream stream;
  stream.tokens.resize(static_cast<size_t>(tokens));
  std::iota(stream.tokens.begin(), stream.tokens.end(), 0);
  return stream;
}

TEST(KeyedPermutation, IsABijectionOfEverySmallSize) {
  for (uint64_t size = 1; size <= 300; ++size) {
    std::vector<uint64_t> values = image(KeyedPermutation(size, philox_key(1, "test"), 0), size);
    std::sort(values.begin(), values.end());
    ASSERT_EQ(values, upto(size)) << size;
  }
}

TEST(KeyedPermutation, IsABijectionForAnyKeySizeAndEpoch) {
  EXPECT_TRUE(rc::check("sorted image is 0..size-1", [] {
    const uint64_t size = *rc::gen::inRange<uint64_t>(1, 20000);
    const KeyedPermutation permutation(size,
                                       {*rc::gen::arbitrary<uint32_t>(), *rc::gen::arbitrary<uint32_t>()},
                                       *rc::gen::arbitrary<uint32_t>());
    std::vector<uint64_t> values = image(permutation, size);
    std::sort(values.begin(), values.end());
    RC_ASSERT(values == upto(size));
  }));
}

TEST(KeyedPermutation, HugeSizesStayInside) {
  for (const uint64_t size : {(uint64_t{1} << 62), (uint64_t{1} << 60) + 1, uint64_t{15'600'000'000'000}}) {
    const KeyedPermutation permutation(size, philox_key(3, "test"), 1);
    std::set<uint64_t> seen;
    for (uint64_t i = 0; i < 1000; ++i) {
      EXPECT_LT(permutation(i), size);
      EXPECT_LT(permutation(size - 1 - i), size);
      seen.insert({permutation(i), permutation(size - 1 - i)});
    }
    EXPECT_EQ(seen.size(), 2000u);
  }
  EXPECT_THROW(KeyedPermutation(0, {}, 0), RunError);
  EXPECT_THROW(KeyedPermutation((uint64_t{1} << 62) + 1, {}, 0), RunError);
  EXPECT_THROW(KeyedPermutation(10, {}, 0)(10), RunError);
}

// A shuffle's figures, against what a uniformly random permutation gives; keys are fixed, so the test is too.
TEST(KeyedPermutation, LooksShuffled) {
  constexpr uint64_t size = 12'000;
  for (const uint32_t epoch : {0u, 1u, 7u}) {
    const std::vector<uint64_t> values =
        image(KeyedPermutation(size, philox_key(1, "sample order"), epoch), size);
    // Correlation of place and value: standard deviation 1/sqrt(size - 1) = 0.0091; four of them.
    const double mean = (size - 1) / 2.0;
    double covariance = 0;
    double variance = 0;
    int64_t fixed = 0;
    int64_t neighbours = 0;
    for (uint64_t i = 0; i < size; ++i) {
      const double x = static_cast<double>(i) - mean;
      covariance += x * (static_cast<double>(values[i]) - mean);
      variance += x * x;
      fixed += values[i] == i;
      neighbours += i > 0 && values[i] == values[i - 1] + 1;
    }
    EXPECT_LT(std::fabs(covariance / variance), 4 / std::sqrt(size - 1.0));
    EXPECT_LE(fixed, 7);       // Poisson(1): P(> 7) = 1e-5
    EXPECT_LE(neighbours, 7);  // Poisson(1) as well
    // Values of a batch of 1,200 over tenths of the range: chi-squared with 9 degrees, 33.7 at 1e-4.
    std::vector<double> tenths(10, 0.0);
    for (uint64_t i = 0; i < 1200; ++i) tenths[values[i] * 10 / size] += 1;
    double chi_squared = 0;
    for (const double count : tenths) chi_squared += (count - 120) * (count - 120) / 120;
    EXPECT_LT(chi_squared, 33.7);
  }
}

TEST(Windows, InputsTileTheStreamAndTargetsAreOneOn) {
  for (const int64_t tokens : {6, 10, 11, 12, 15, 16}) {
    const TokenStream stream = counting_stream(tokens);
    const Windows windows(stream, 5);
    EXPECT_EQ(windows.count(), (tokens - 1) / 5);
    EXPECT_EQ(windows.left_over(), tokens - 1 - windows.count() * 5);
    std::vector<int64_t> inputs(static_cast<size_t>(windows.count() * 5)), targets(inputs.size());
    windows.fill_in_order(0, windows.count(), inputs, targets);
    for (size_t i = 0; i < inputs.size(); ++i) {
      EXPECT_EQ(inputs[i], static_cast<int64_t>(i));  // no token twice, none left out
      EXPECT_EQ(targets[i], static_cast<int64_t>(i) + 1);
    }
  }
  const TokenStream short_stream = counting_stream(5);
  EXPECT_THROW(Windows(short_stream, 5), UsageError);
  EXPECT_THROW(Windows(short_stream, 0), UsageError);
  EXPECT_THROW(Windows(TokenStream{}, 1), UsageError);
}

TEST(Windows, MisuseIsRefused) {
  const TokenStream stream = counting_stream(11);
  const Windows windows(stream, 5);
  std::vector<int64_t> five(5), four(4), ten(10);
  EXPECT_THROW(windows.fill(2, five, five), RunError);
  EXPECT_THROW(windows.fill(-1, five, five), RunError);
  EXPECT_THROW(windows.fill(0, four, five), RunError);
  EXPECT_THROW(windows.fill(0, five, four), RunError);
  EXPECT_THROW(windows.fill_in_order(1, 2, ten, ten), RunError);
  EXPECT_THROW(windows.fill_in_order(0, 2, five, five), RunError);
}

TEST(Sampler, EachWindowOnceAnEpochInAnotherOrder) {
  EXPECT_TRUE(rc::check("three epochs", [](uint64_t seed) {
    const int64_t sequence = *rc::gen::inRange<int64_t>(1, 9);
    const int64_t count = *rc::gen::inRange<int64_t>(30, 200);
    const TokenStream stream =
        counting_stream(count * sequence + 1 + *rc::gen::inRange<int64_t>(0, sequence));
    const Sampler sampler(stream, sequence, seed);
    RC_ASSERT(sampler.windows() == count);
    std::vector<std::vector<uint64_t>> epochs(3);
    for (int64_t sample = 0; sample < 3 * count; ++sample) {
      const SamplePlace place = sampler.place(sample);
      RC_ASSERT(place.epoch == sample / count);
      epochs[static_cast<size_t>(place.epoch)].push_back(static_cast<uint64_t>(place.window));
    }
    RC_ASSERT(epochs[0] != epochs[1]);
    RC_ASSERT(epochs[1] != epochs[2]);
    for (std::vector<uint64_t>& epoch : epochs) {
      std::sort(epoch.begin(), epoch.end());
      RC_ASSERT(epoch == upto(static_cast<uint64_t>(count)));
    }
  }));
}

TEST(Sampler, TheSeedChangesTheOrder) {
  const TokenStream stream = counting_stream(1001);
  const Sampler one(stream, 10, 1), same(stream, 10, 1), two(stream, 10, 2);
  int differences = 0;
  for (int64_t sample = 0; sample < 100; ++sample) {
    EXPECT_EQ(one.place(sample).window, same.place(sample).window);
    differences += one.place(sample).window != two.place(sample).window;
  }
  EXPECT_GT(differences, 90);
}

// The order belongs to the format of a run: a checkpoint made today must go on in the same order tomorrow.
TEST(Sampler, TheOrderIsPinned) {
  const TokenStream stream = counting_stream(1001);
  const Sampler sampler(stream, 10, 1);
  std::vector<int64_t> first;
  for (int64_t sample = 0; sample < 8; ++sample) first.push_back(sampler.place(sample).window);
  EXPECT_EQ(first, (std::vector<int64_t>{4, 97, 22, 58, 5, 44, 68, 12}));
}

TEST(Sampler, SamplesDoNotDependOnWhoAsksForWhich) {
  const TokenStream stream = counting_stream(12 * 50 + 5);
  const Sampler sampler(stream, 12, 9);
  constexpr int64_t total = 120;  // more than two epochs
  std::vector<int64_t> inputs(total * 12), targets(total * 12);
  sampler.fill(0, total, inputs, targets);
  for (int64_t sample = 0; sample < total; ++sample) {
    const int64_t begin = sampler.place(sample).window * 12;
    for (int64_t i = 0; i < 12; ++i) {
      EXPECT_EQ(inputs[static_cast<size_t>(sample * 12 + i)], begin + i);
      EXPECT_EQ(targets[static_cast<size_t>(sample * 12 + i)], begin + i + 1);
    }
  }
  EXPECT_TRUE(rc::check("any cut gives the same samples", [&] {
    const int64_t first = *rc::gen::inRange<int64_t>(0, total);
    const int64_t n = *rc::gen::inRange<int64_t>(0, total - first + 1);
    std::vector<int64_t> part(static_cast<size_t>(n * 12)), part_targets(part.size());
    sampler.fill(first, n, part, part_targets);
    RC_ASSERT(std::equal(part.begin(), part.end(), inputs.begin() + first * 12));
    RC_ASSERT(std::equal(part_targets.begin(), part_targets.end(), targets.begin() + first * 12));
  }));
  EXPECT_THROW(sampler.place(-1), RunError);
  EXPECT_THROW(sampler.fill(0, 2, inputs, targets), RunError);
}

}  // namespace
}  // namespace lockstep::data
