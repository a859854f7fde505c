// What happens when ranks do not come, die, or come with something else.
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <functional>
#include <stdexcept>
#include <thread>

#include "base/error.hpp"
#include "ranks.hpp"

namespace lockstep::comm::test {
namespace {

using namespace std::chrono_literals;
using Clock = std::chrono::steady_clock;

// How fast a death must end a wait; sanitizers slow what runs before the wait down.
#if defined(__SANITIZE_THREAD__) || defined(__SANITIZE_ADDRESS__)
constexpr auto patience = 1000ms;
#else
constexpr auto patience = 100ms;
#endif

TEST(Failure, ATimeoutNamesGroupOperationSequenceAndMissingRanks) {
  const auto errors = run_threads(
      5,
      [](World& world) {
        const auto everybody = world.group("world", everyone(5));
        everybody->barrier();
        if (world.rank() == 0) return;
        const auto group = world.group("dp", {1, 2, 4});
        float value = 1;
        group->all_reduce(&value, 1, DataType::f32);
        if (world.rank() == 2 || world.rank() == 3) return;
        group->all_reduce(&value, 1, DataType::f32, ReduceOp::sum, {"grad_reduce", 200ms});
      },
      false);
  EXPECT_EQ(errors[0], "");
  EXPECT_EQ(errors[2], "");
  expect_contains(errors[3], "rank 3 is not a member");
  for (const size_t r : {1, 4}) {
    expect_contains(errors[r], "all_reduce 'grad_reduce' #1 of group 'dp' [1 2 4]");
    expect_contains(errors[r], "timed out after 200 ms; did not come: global rank 2");
    EXPECT_EQ(errors[r].find("global rank 4"), std::string::npos) << errors[r];
  }
}

TEST(Failure, ATimeoutTakesItsTimeAndNoLonger) {
  const auto errors = run_threads(
      2,
      [](World& world) {
        const auto group = world.group("g", {0, 1});
        group->set_timeout(150ms);
        if (world.rank() == 1) return;
        const auto start = Clock::now();
        try {
          group->barrier();
        } catch (const RunError&) {
          const auto took = Clock::now() - start;
          if (took < 150ms || took > 2s) throw std::runtime_error("took the wrong time");
          throw;
        }
      },
      false);
  expect_contains(errors[0],
                  "barrier #0 of group 'g' [0 1] timed out after 150 ms; did not come: global rank 1");
}

TEST(Failure, WhoComesLateIsToldWhyTheGroupBroke) {
  const auto errors = run_threads(
      2,
      [](World& world) {
        const auto group = world.group("g", {0, 1});
        if (world.rank() == 1) std::this_thread::sleep_for(300ms);
        group->barrier({"step", 50ms});
      },
      false);
  expect_contains(errors[0], "did not come: global rank 1");
  expect_contains(errors[1], "the group is broken");
  expect_contains(errors[1], "timed out after 50 ms");
}

TEST(Failure, AReceiveThatTimesOutNamesTheSenderAndTheTag) {
  const auto errors = run_threads(
      3,
      [](World& world) {
        const auto group = world.group("pp", everyone(3));
        float value = 0;
        if (world.rank() == 2) group->recv(&value, 1, DataType::f32, 1, 77, {"recv_forward", 60ms});
      },
      false);
  expect_contains(errors[2], "recv 'recv_forward' #0 of group 'pp' [0 1 2] timed out after 60 ms");
  expect_contains(errors[2], "global rank 1 (no message of 1 f32 with tag 77)");
}

TEST(Failure, ASendWhoseMailboxStaysFullTimesOut) {
  const auto errors = run_threads(
      2,
      [](World& world) {
        const auto group = world.group("pp", everyone(2));
        const std::vector<uint8_t> data(40 << 20);
        if (world.rank() == 0) group->send(data.data(), data.size(), DataType::u8, 1, 0, {"", 60ms});
      },
      false);
  expect_contains(errors[0],
                  "send #0 of group 'pp' [0 1] timed out after 60 ms; did not come: global rank 1");
}

// Ranks 0 to 3 wait for rank 4 in every way there is; its death ends all of it. Returns how long the slowest
// took.
Clock::duration die_while_others_wait() {
  std::atomic<Clock::rep> death{0};
  std::atomic<int> ready{0};
  std::vector<Clock::duration> took(4);
  const auto errors = run_threads(
      5,
      [&](World& world) {
        const auto all = world.group("world", everyone(5));
        const int me = world.rank();
        if (me == 4) {
          while (ready.load() < 4) std::this_thread::yield();
          std::this_thread::sleep_for(50ms);  // they fall asleep
          death = Clock::now().time_since_epoch().count();
          world.abort("out of memory");
          return;
        }
        const auto pair = world.group("tp", me < 2 ? std::vector<int>{0, 1} : std::vector<int>{2, 3});
        std::vector<float> data(1 << 16);
        std::vector<uint8_t> large(40 << 20);
        ++ready;
        try {
          if (me == 0) all->all_reduce(data.data(), data.size(), DataType::f32);
          if (me == 1) pair->recv(data.data(), 1, DataType::f32, 0, 0);  // from 0, which is not dead
          if (me == 2) all->irecv(data.data(), 1, DataType::f32, 4, 0).wait();
          if (me == 3) all->send(large.data(), large.size(), DataType::u8, 4, 0);
        } catch (const RunError&) {
          took[static_cast<size_t>(me)] = Clock::now().time_since_epoch() - Clock::duration(death.load());
          throw;
        }
      },
      false);
  for (size_t r = 0; r < 4; ++r) expect_contains(errors[r], "global rank 4 died (out of memory)");
  EXPECT_GT(*std::min_element(took.begin(), took.end()), 0ms);
  return *std::max_element(took.begin(), took.end());
}

TEST(Failure, ADeathEndsEveryWaitEverywhereAtOnce) {
  auto best = Clock::duration::max();  // of a few, since other programs may hold the processor
  for (int attempt = 0; attempt < 4 && best >= patience; ++attempt)
    best = std::min(best, die_while_others_wait());
  EXPECT_LT(best, patience);
}

TEST(Failure, AnAsynchronousOperationFailsThroughItsHandleEveryTime) {
  const auto errors = run_threads(
      2,
      [](World& world) {
        const auto group = world.group("g", {0, 1});
        float value = 0;
        if (world.rank() == 1) return;
        Work work = group->all_reduce_async(&value, 1, DataType::f32, ReduceOp::sum, {"late", 50ms});
        EXPECT_THROW(work.wait(), RunError);
        EXPECT_TRUE(work.done());
        work.wait();
      },
      false);
  expect_contains(errors[0], "all_reduce 'late' #0");
}

TEST(Failure, TheReasonReachesEveryRankOfALargeGroup) {
  const auto arena = SharedArena::create(200);
  LocalWorld first(arena, 0), second(arena, 1);
  const auto error_of = [](Communicator& group) {
    try {
      group.barrier({"step", 20ms});
    } catch (const RunError& error) {
      return std::string(error.what());
    }
    return std::string("no error");
  };
  const auto group = first.group("world", everyone(200));
  for (const std::string& error : {error_of(*group), error_of(*second.group("world", everyone(200)))}) {
    expect_contains(error, "barrier 'step' #0 of group 'world' [0 1 2 ");
    expect_contains(error, " ... 199; 200 ranks]");
    expect_contains(error, "timed out after 20 ms; did not come: global rank 1, global rank 2");
  }
}

TEST(Failure, TimeOutsThatMeanNothingAreRefused) {
  LocalWorld world(SharedArena::create(1), 0);
  const auto group = world.group("g", {0});
  EXPECT_THROW(group->set_timeout(0ms), UsageError);
  EXPECT_THROW(group->set_timeout(-1ms), UsageError);
  EXPECT_THROW(group->set_timeout(std::chrono::milliseconds::max()), UsageError);
  EXPECT_THROW(group->barrier({"", -1ms}), UsageError);
  group->set_timeout(max_timeout);
  group->barrier({"", 1ms});
}

TEST(Failure, TheFirstDeathIsTheOneThatIsNamed) {
  const auto arena = SharedArena::create(3);
  EXPECT_FALSE(arena->any_dead());
  EXPECT_EQ(arena->first_dead(), -1);
  arena->mark_dead(1, "first");
  arena->mark_dead(2, "second");
  EXPECT_EQ(arena->first_dead(), 1);
  EXPECT_EQ(arena->first_dead_reason(), "first");
  EXPECT_THROW(arena->mark_dead(3, "nobody"), UsageError);
}

void expect_mismatch(const RankBody& body, const std::vector<std::string>& parts) {
  for (const std::string& error : run_threads(3, body, false)) {
    expect_contains(error, "does not match");
    for (const std::string& part : parts) expect_contains(error, part);
  }
}

TEST(Failure, DifferentCallsAreToldApartOnAllRanks) {
  expect_mismatch(
      [](World& world) {
        const auto group = world.group("g", everyone(3));
        std::vector<float> own(3000), all(9000);
        group->barrier();
        if (world.rank() == 1)
          group->all_gather(own.data(), all.data(), 100, DataType::f32);
        else
          group->all_reduce(own.data(), 100, DataType::f32);
      },
      {"#1 of group 'g'", "global rank 0 brought all_reduce of 100 f32 (sum)",
       "global rank 1 brought all_gather of 100 f32", "global rank 2 brought all_reduce"});
  expect_mismatch(
      [](World& world) {
        const auto group = world.group("g", everyone(3));
        std::vector<float> own(3'000'000);
        group->all_reduce(own.data(), world.rank() == 2 ? 1000 : 3'000'000, DataType::f32);
      },
      {"global rank 0 brought all_reduce of 3000000 f32", "global rank 2 brought all_reduce of 1000 f32"});
  expect_mismatch(
      [](World& world) {
        const auto group = world.group("g", everyone(3));
        std::vector<float> own(10);
        group->all_reduce(own.data(), 10, world.rank() == 0 ? DataType::i32 : DataType::f32);
      },
      {"global rank 0 brought all_reduce of 10 i32"});
  expect_mismatch(
      [](World& world) {
        const auto group = world.group("g", everyone(3));
        float own = 0;
        group->broadcast(&own, 1, DataType::f32, world.rank() == 0 ? 0 : 1);
      },
      {"global rank 0 brought broadcast of 1 f32 from group rank 0", "from group rank 1"});
}

TEST(Failure, AMessageOfAnotherSizeOrTypeIsRefused) {
  const auto errors = run_threads(
      2,
      [](World& world) {
        const auto group = world.group("g", everyone(2));
        std::vector<float> data(10);
        if (world.rank() == 0)
          group->send(data.data(), 10, DataType::f32, 1, 3);
        else
          group->recv(data.data(), 9, DataType::f32, 0, 3);
      },
      false);
  EXPECT_EQ(errors[0], "");
  expect_contains(errors[1], "global rank 0 sent 10 f32 with tag 3, global rank 1 expects 9 f32 with tag 3");
}

// Rank 1 asks for the wrong size of a message of rank 0, then goes on using the broken group. `ask` says how;
// when `sent` returns, rank 0 has nothing more to do in the group.
void expect_refusals(const std::function<void(Communicator&, const std::function<void()>& sent)>& ask) {
  const auto errors = run_threads(
      2,
      [&](World& world) {
        const auto group = world.group("g", everyone(2));
        const auto apart = world.group("apart", everyone(2));
        const std::vector<float> data(2000, 1.f);
        if (world.rank() == 1) return ask(*group, [&] { apart->barrier(); });
        group->send(data.data(), 10, DataType::f32, 1, 1);
        group->send(data.data(), 2000, DataType::f32, 1, 2);
        apart->barrier();
      },
      false);
  EXPECT_EQ(errors[0], "");
  expect_contains(errors[1], "the group is broken");
}

TEST(Failure, AGroupStaysBrokenAfterAMessageOfTheWrongSize) {
  expect_refusals([](Communicator& group, const auto& sent) {
    std::vector<float> data(2000);
    Work wrong = group.irecv(data.data(), 9, DataType::f32, 0, 1);
    Work other = group.irecv(data.data(), 2000, DataType::f32, 0, 2);
    sent();
    EXPECT_THROW(wrong.wait(), RunError);
    EXPECT_THROW(wrong.wait(), RunError);
    other.wait();  // what came whole is whole
    EXPECT_EQ(data, std::vector<float>(2000, 1.f));
    group.barrier();
  });
}

TEST(Failure, AKeptMessageOfTheWrongSizeIsRefused) {
  expect_refusals([](Communicator& group, const auto& sent) {
    std::vector<float> data(2000);
    group.recv(data.data(), 2000, DataType::f32, 0, 2);  // the first message is kept meanwhile
    sent();
    EXPECT_THROW((void)group.irecv(data.data(), 9, DataType::f32, 0, 1), RunError);
    (void)group.irecv(data.data(), 10, DataType::f32, 0, 1);
  });
}

}  // namespace
}  // namespace lockstep::comm::test
