// Groups: how they are made, that they do not meet, and that they end.
#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <stdexcept>

#include "base/error.hpp"
#include "comm/shared_layout.hpp"
#include "ranks.hpp"

namespace lockstep::comm::test {
namespace {

using namespace std::chrono_literals;

TEST(Groups, WrongGroupsAreRefused) {
  LocalWorld world(SharedArena::create(4), 1);
  EXPECT_THROW(world.group("g", {}), UsageError);
  EXPECT_THROW(world.group("g", {0, 2}), UsageError);
  EXPECT_THROW(world.group("g", {1, 0}), UsageError);
  EXPECT_THROW(world.group("g", {1, 1}), UsageError);
  EXPECT_THROW(world.group("g", {1, 4}), UsageError);
  EXPECT_THROW(LocalWorld(SharedArena::create(4), 4), UsageError);
  EXPECT_THROW(SharedArena::create(0), UsageError);
  EXPECT_THROW(SharedArena::create(1000), UsageError);
  EXPECT_THROW(SharedArena::attach(0), RunError);
  const auto group = world.group("g", {0, 1});
  float value = 0;
  EXPECT_THROW(group->broadcast(&value, 1, DataType::f32, 2), UsageError);
  EXPECT_THROW(group->send(&value, 1, DataType::f32, 1, 0), UsageError);
}

// TP2 x PP2 x DP2 and the world, made in different orders, twice, all in use at once.
void use_many_groups(World& world) {
  const int me = world.rank();
  const int tp = me % 2, pp = me / 2 % 2, dp = me / 4;
  struct Axis {
    std::string name;
    std::vector<int> ranks;
  };
  std::vector<Axis> axes = {{"tp", {2 * pp + 4 * dp, 1 + 2 * pp + 4 * dp}},
                            {"pp", {tp + 4 * dp, tp + 2 + 4 * dp}},
                            {"dp", {tp + 2 * pp, tp + 2 * pp + 4}},
                            {"world", everyone(8)},
                            {"world", everyone(8)}};
  if (me % 3 == 0) std::reverse(axes.begin(), axes.end());
  std::vector<std::unique_ptr<Communicator>> groups;
  for (const Axis& axis : axes) groups.push_back(world.group(axis.name, axis.ranks));
  for (int k = 0; k < 20; ++k) {
    std::vector<std::vector<int64_t>> data;
    std::vector<Work> works;
    for (const auto& g : groups) {
      data.emplace_back(2000 + static_cast<size_t>(k), me);
      works.push_back(g->all_reduce_async(data.back().data(), data.back().size(), DataType::i64));
    }
    for (size_t g = 0; g < groups.size(); ++g) {
      works[g].wait();
      int64_t sum = 0;
      for (const int r : axes[g].ranks) sum += r;
      if (data[g] != std::vector<int64_t>(data[g].size(), sum))
        throw std::runtime_error("group " + axes[g].name);
    }
  }
}

TEST(Groups, ManyAtOnceDoNotMeet) {
  expect_no_errors(run_processes(8, use_many_groups));
  expect_no_errors(run_threads(8, use_many_groups));
}

TEST(Groups, SixtyFourOfEveryoneFit) {
  expect_no_errors(run_processes(4, [](World& world) {
    std::vector<std::unique_ptr<Communicator>> groups;
    for (int g = 0; g < 64; ++g) groups.push_back(world.group("g" + std::to_string(g), everyone(4)));
    for (const auto& group : groups) {
      int32_t value = 1;
      group->all_reduce(&value, 1, DataType::i32);
      if (value != 4) throw std::runtime_error("sum");
    }
  }));
}

TEST(Groups, OneTooManyIsRefusedOnEveryRank) {
  const auto errors = run_threads(
      3,
      [](World& world) {
        for (int g = 0; g < 64; ++g) world.group("g", everyone(3));
        world.group("g", everyone(3));
      },
      false);
  for (const std::string& error : errors) {
    expect_contains(error, "group 'g' [0 1 2]: the shared memory has no room for another group of 3 ranks");
    expect_contains(error, "make each group once");
  }
}

// A member that stops, or dies unseen, while it lays a group out: what it leaves is an entry with a key.
TEST(Groups, AMemberStoppedWhileItMakesAGroupIsNamed) {
  const auto pattern = SharedArena::create(2);
  LocalWorld(pattern, 1).group("tp", {0, 1});
  const auto arena = SharedArena::create(2);
  for (size_t g = 0; g < max_groups; ++g)
    arena->header().groups[g].key = pattern->header().groups[g].key.load();
  LocalWorld world(arena, 0, 50ms);
  try {
    world.group("tp", {0, 1});
    FAIL() << "no error";
  } catch (const RunError& error) {
    expect_contains(error.what(), "group 'tp' [0 1]: global rank 1 began to make it");
  }
  arena->mark_dead(1, "killed by signal 9");
  LocalWorld again(arena, 0);
  try {
    again.group("tp", {0, 1});
    FAIL() << "no error";
  } catch (const RunError& error) {
    expect_contains(error.what(), "group 'tp' [0 1]: global rank 1 died (killed by signal 9)");
  }
}

TEST(Groups, AsynchronousCallsRunInTheOrderOfIssue) {
  expect_no_errors(run_threads(2, [](World& world) {
    const auto group = world.group("g", {0, 1});
    std::vector<double> chain(5000, 1.0);
    std::vector<Work> works;
    for (int k = 0; k < 30; ++k)
      works.push_back(group->all_reduce_async(chain.data(), chain.size(), DataType::f64));
    group->all_reduce(chain.data(), chain.size(), DataType::f64);  // after them
    if (chain != std::vector<double>(5000, 0x1p31)) throw std::runtime_error("order");
    for (Work& w : works)
      if (!w.done()) throw std::runtime_error("not done");
  }));
}

}  // namespace
}  // namespace lockstep::comm::test
