// Sums that go over several calls (OpOptions::accumulate, contributors).
#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <stdexcept>
#include <thread>

#include "base/error.hpp"
#include "base/philox.hpp"
#include "observe/span.hpp"
#include "ranks.hpp"

namespace lockstep::comm::test {
namespace {

using namespace std::chrono_literals;

// Element i of replica r: of very different sizes, so that another order of adding shows in the last bits.
float element(int replica, size_t i) {
  const auto random = philox4x32({static_cast<uint32_t>(i), static_cast<uint32_t>(replica), 3, 0}, {5, 6});
  return static_cast<float>((uniform_open(random[0], random[1]) - 0.5) *
                            std::exp2(static_cast<int>(random[2] % 20)));
}

std::vector<float> replica(int r, size_t n) {
  std::vector<float> values(n);
  for (size_t i = 0; i < n; ++i) values[i] = element(r, i);
  return values;
}

std::vector<float> ascending_sum(int replicas, size_t n) {
  std::vector<float> sum = replica(0, n);
  for (int r = 1; r < replicas; ++r)
    for (size_t i = 0; i < n; ++i) sum[i] += element(r, i);
  return sum;
}

void expect_bits(const std::vector<float>& got, const std::vector<float>& all, size_t from) {
  for (size_t i = 0; i < got.size(); ++i)
    if (std::bit_cast<uint32_t>(got[i]) != std::bit_cast<uint32_t>(all[from + i]))
      throw std::runtime_error("element " + std::to_string(from + i) + " is " + std::to_string(got[i]) +
                               ", not " + std::to_string(all[from + i]));
}

// Replicas on fewer ranks: in round k the ranks bring replicas k * size ..; whoever has none brings nothing.
std::vector<float> fold(Communicator& group, int replicas, size_t total, bool async) {
  const int ranks = group.size();
  const size_t n = total / static_cast<size_t>(ranks);
  std::vector<float> part(n, std::nanf(""));  // must not show in the sum
  for (int first = 0; first < replicas; first += ranks) {
    const int contributors = std::min(ranks, replicas - first);
    std::vector<float> mine;
    if (group.rank() < contributors) mine = replica(first + group.rank(), total);
    const float* input = mine.empty() ? nullptr : mine.data();
    const OpOptions options{.name = "fold", .accumulate = first != 0, .contributors = contributors};
    if (async)
      group.reduce_scatter_async(input, part.data(), n, DataType::f32, ReduceOp::sum, options).wait();
    else
      group.reduce_scatter(input, part.data(), n, DataType::f32, ReduceOp::sum, options);
  }
  return part;
}

TEST(Fold, TwelveReplicasGiveTheSameBitsOnAnyNumberOfRanks) {
  for (const size_t total : {size_t{60}, size_t{60 * 7'001}}) {
    const std::vector<float> truth = ascending_sum(12, total);
    for (const int ranks : {12, 6, 4, 5, 1})
      expect_no_errors(run_threads(ranks, [&](World& world) {
        const auto group = world.group("dp", everyone(world.size()));
        for (const bool async : {false, true}) {
          const std::vector<float> part = fold(*group, 12, total, async);
          expect_bits(part, truth, part.size() * static_cast<size_t>(world.rank()));
        }
      }));
  }
}

// The order matters for these numbers: else the test above could not fail.
TEST(Fold, AnotherOrderGivesOtherBits) {
  const std::vector<float> truth = ascending_sum(12, 600);
  std::vector<float> descending = replica(11, 600);
  for (int r = 10; r >= 0; --r)
    for (size_t i = 0; i < descending.size(); ++i) descending[i] += element(r, i);
  EXPECT_THROW(expect_bits(descending, truth, 0), std::runtime_error);
}

TEST(Fold, ContributorsAloneMayBeFewer) {
  expect_no_errors(run_threads(4, [](World& world) {
    const auto group = world.group("dp", everyone(4));
    const std::vector<float> truth = ascending_sum(2, 400);
    const std::vector<float> mine = replica(world.rank(), 400);
    std::vector<float> part(100);
    group->reduce_scatter(world.rank() < 2 ? mine.data() : nullptr, part.data(), 100, DataType::f32,
                          ReduceOp::sum, {.contributors = 2});
    expect_bits(part, truth, static_cast<size_t>(world.rank()) * 100);
    // Zeros are not added: -0 stays -0.
    const std::vector<float> negative(4, -0.f);
    float zero = 1;
    group->reduce_scatter(world.rank() < 1 ? negative.data() : nullptr, &zero, 1, DataType::f32,
                          ReduceOp::sum, {.contributors = 1});
    if (!std::signbit(zero)) throw std::runtime_error("a zero was added");
  }));
}

TEST(Fold, Bf16IsRoundedOnceACall) {
  expect_no_errors(run_threads(2, [](World& world) {
    const auto group = world.group("dp", everyone(2));
    const uint16_t one = 0x3F80, small = 0x3B00;  // 1 and 2^-9: a quarter of the last place of 1
    const std::vector<uint16_t> mine(2, small);
    uint16_t sum = one;  // 1 + 2^-9 + 2^-9 in fp32 lies half a place above 1: to even, down
    group->reduce_scatter(mine.data(), &sum, 1, DataType::bf16, ReduceOp::sum, {.accumulate = true});
    if (sum != one) throw std::runtime_error("first round");
    sum = one + 1;
    group->reduce_scatter(mine.data(), &sum, 1, DataType::bf16, ReduceOp::sum, {.accumulate = true});
    if (sum != one + 2) throw std::runtime_error("second round");  // to even, up; rounding twice: down
  }));
}

TEST(Fold, WhatHasNoMeaningIsRefused) {
  LocalWorld world(SharedArena::create(2), 0);
  const auto group = world.group("g", {0});
  const auto pair = world.group("pair", {0, 1});
  std::vector<float> a(4), b(4);
  const auto scatter = [&](float* output, ReduceOp op, const OpOptions& options) {
    group->reduce_scatter(a.data(), output, 4, DataType::f32, op, options);
  };
  EXPECT_THROW(scatter(a.data(), ReduceOp::sum, {.accumulate = true}), UsageError);
  EXPECT_THROW(scatter(b.data(), ReduceOp::max, {.accumulate = true}), UsageError);
  EXPECT_THROW(scatter(b.data(), ReduceOp::sum, {.contributors = 2}), UsageError);
  EXPECT_THROW(scatter(b.data(), ReduceOp::sum, {.contributors = -1}), UsageError);
  const auto refused_by_others = [&](const OpOptions& o) {
    EXPECT_THROW(group->all_reduce(a.data(), 4, DataType::f32, ReduceOp::sum, o), UsageError);
    EXPECT_THROW((void)group->all_gather_async(a.data(), b.data(), 4, DataType::f32, o), UsageError);
    EXPECT_THROW(group->broadcast(a.data(), 4, DataType::f32, 0, o), UsageError);
    EXPECT_THROW(group->barrier(o), UsageError);
    EXPECT_THROW(pair->send(a.data(), 4, DataType::f32, 1, 0, o), UsageError);
    EXPECT_THROW((void)pair->isend(a.data(), 4, DataType::f32, 1, 0, o), UsageError);
    EXPECT_THROW(pair->recv(a.data(), 4, DataType::f32, 1, 0, o), UsageError);
  };
  refused_by_others({.accumulate = true});
  refused_by_others({.contributors = 1});
}

TEST(Fold, MembersMustAgreeOnIt) {
  for (const bool by_accumulate : {true, false}) {
    const auto errors = run_threads(
        2,
        [&](World& world) {
          const auto group = world.group("g", everyone(2));
          std::vector<float> input(20), output(10);
          OpOptions options;
          if (world.rank() == 1) (by_accumulate ? options.accumulate = true : options.contributors = 1);
          group->reduce_scatter(input.data(), output.data(), 10, DataType::f32, ReduceOp::sum, options);
        },
        false);
    for (const std::string& error : errors) {
      expect_contains(error, "does not match");
      expect_contains(error, "global rank 0 brought reduce_scatter of 10 f32 (sum, of 2 contributors)");
      expect_contains(error, by_accumulate ? "(sum, accumulated, of 2 contributors)"
                                           : "global rank 1 brought reduce_scatter of 10 f32 (sum, of 1 ");
    }
  }
}

}  // namespace
}  // namespace lockstep::comm::test
