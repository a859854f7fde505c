// Sample order: each window once an epoch, whatever asks for it.
#include "data/sampler.hpp"

#include <gtest/gtest.h>
#include <rapidcheck.h>

#include <algorithm>
#include <cmath>
#include <numeric>
#include <set>

#include "base/error.hpp"
#include "support.hpp"

namespace lockstep::data {
namespace {

using tests::counting_stream;
using tests::drawn_stream;
using tests::slow_window;
using tests::WholeSequence;

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

WholeSequence filled(const Windows& windows, int64_t window, bool masked) {
  const auto length = static_cast<size_t>(windows.sequence());
  WholeSequence whole{std::vector<int64_t>(length), std::vector<int64_t>(length),
                      std::vector<int64_t>(masked ? length : 0)};
  windows.fill(window, {whole.inputs, whole.targets, whole.document_starts});
  return whole;
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
    int64_t next = 0;  // no token twice, none left out
    for (int64_t window = 0; window < windows.count(); ++window) {
      const WholeSequence whole = filled(windows, window, false);
      for (size_t i = 0; i < 5; ++i) {
        EXPECT_EQ(whole.inputs[i], next++);
        EXPECT_EQ(whole.targets[i], next);
      }
    }
  }
  const TokenStream short_stream = counting_stream(5);
  EXPECT_THROW(Windows(short_stream, 5), UsageError);
  EXPECT_THROW(Windows(short_stream, 0), UsageError);
  EXPECT_THROW(Windows(TokenStream{}, 1), UsageError);
}

// Four documents of 3, 4, 1 and 5 tokens, their joining newlines counted with them.
TEST(Windows, DocumentsAreToldApart) {
  TokenStream stream = counting_stream(13);
  stream.document_begins = {0, 3, 7, 8};
  const Windows windows(stream, 4);
  EXPECT_EQ(filled(windows, 0, true), (WholeSequence{{0, 1, 2, 3}, {1, 2, -1, 4}, {0, 0, 0, 3}}));
  EXPECT_EQ(filled(windows, 1, true), (WholeSequence{{4, 5, 6, 7}, {5, 6, -1, -1}, {0, 0, 0, 3}}));
  EXPECT_EQ(filled(windows, 2, true), (WholeSequence{{8, 9, 10, 11}, {9, 10, 11, 12}, {0, 0, 0, 0}}));
  EXPECT_EQ(filled(windows, 1, false), (WholeSequence{{4, 5, 6, 7}, {5, 6, 7, 8}, {}}));
}

TEST(Windows, DocumentsOfAnyLengthAreToldApart) {
  EXPECT_TRUE(rc::check("each token's document looked up by itself", [] {
    const int64_t sequence = *rc::gen::inRange<int64_t>(1, 12);
    const TokenStream stream = drawn_stream(*rc::gen::inRange<int64_t>(sequence + 1, 120), sequence);
    const Windows windows(stream, sequence);
    for (int64_t window = 0; window < windows.count(); ++window) {
      for (const bool masked : {false, true})
        RC_ASSERT(filled(windows, window, masked) == slow_window(stream, sequence, window, masked));
    }
  }));
}

TEST(Windows, MisuseIsRefused) {
  const TokenStream stream = counting_stream(11);
  const Windows windows(stream, 5);
  std::vector<int64_t> five(5), four(4);
  EXPECT_THROW(windows.fill(2, {five, five, {}}), RunError);
  EXPECT_THROW(windows.fill(-1, {five, five, {}}), RunError);
  EXPECT_THROW(windows.fill(0, {four, five, {}}), RunError);
  EXPECT_THROW(windows.fill(0, {five, four, {}}), RunError);
  EXPECT_THROW(windows.fill(0, {five, five, four}), RunError);
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

TEST(Sampler, ASampleIsItsWindow) {
  const TokenStream stream = counting_stream(12 * 50 + 5);
  const Sampler sampler(stream, 12, 9);
  std::vector<int64_t> inputs(12), targets(12);
  for (int64_t sample = 0; sample < 120; ++sample) {  // more than two epochs
    sampler.fill(sample, {inputs, targets, {}});
    const WholeSequence expected = slow_window(stream, 12, sampler.place(sample).window, false);
    EXPECT_EQ(inputs, expected.inputs);
    EXPECT_EQ(targets, expected.targets);
  }
  EXPECT_THROW(sampler.place(-1), RunError);
  EXPECT_THROW(sampler.fill(-1, {inputs, targets, {}}), RunError);
}

}  // namespace
}  // namespace lockstep::data
