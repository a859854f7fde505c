// When operations began and ended, and when a message's sender began.
#include <gtest/gtest.h>

#include <atomic>
#include <stdexcept>
#include <thread>

#include "base/error.hpp"
#include "comm/group_memory.hpp"
#include "comm/helper_thread.hpp"
#include "observe/span.hpp"
#include "ranks.hpp"

namespace lockstep::comm::test {
namespace {

using namespace std::chrono_literals;

void expect_between(int64_t before, int64_t ns, int64_t after) {
  if (ns < before || ns > after) throw std::runtime_error("began or ended at a wrong time");
}

TEST(FinishedAt, IsZeroBeforeAndThenTheTimeOfTheEndNotOfTheQuestion) {
  std::atomic<bool> asked{false};  // rank 0 has, before the other came
  expect_no_errors(run_threads(2, [&](World& world) {
    const auto group = world.group("g", everyone(2));
    std::vector<float> data(1000, 1.f), got(1000);
    if (world.rank() == 1) {
      asked.wait(false);
      std::this_thread::sleep_for(30ms);
    }
    int64_t earliest = observe::monotonic_ns();
    Work sum = group->all_reduce_async(data.data(), data.size(), DataType::f32);
    if (world.rank() == 0) {
      const bool over = sum.finished_ns() != 0;
      earliest = observe::monotonic_ns() + 30'000'000;
      asked = true;
      asked.notify_one();
      if (over) throw std::runtime_error("ended before all came");
    }
    sum.wait();
    const int64_t after = observe::monotonic_ns();
    std::this_thread::sleep_for(5ms);
    expect_between(earliest, sum.finished_ns(), after);

    const int other = 1 - world.rank();
    Work received = group->irecv(got.data(), got.size(), DataType::f32, other, 0);
    if (received.finished_ns() != 0) throw std::runtime_error("received before it was sent");
    group->barrier();
    const int64_t sent_before = observe::monotonic_ns();
    Work sent = group->isend(data.data(), data.size(), DataType::f32, other, 0);
    expect_between(sent_before, sent.finished_ns(), observe::monotonic_ns());
    received.wait();
    const int64_t received_before = observe::monotonic_ns();
    std::this_thread::sleep_for(5ms);
    expect_between(sent_before, received.finished_ns(), received_before);
  }));
}

// A message larger than the mailbox leaves by the helper thread, when its last part has found room.
TEST(FinishedAt, OfALongSendIsWhenItsReceiverMadeRoom) {
  expect_no_errors(run_threads(2, [](World& world) {
    const auto group = world.group("g", everyone(2));
    std::vector<float> data(8 << 20);
    if (world.rank() == 0) {
      Work sent = group->isend(data.data(), data.size(), DataType::f32, 1, 0);
      if (sent.finished_ns() != 0) throw std::runtime_error("a full mailbox took it");
      const int64_t before = observe::monotonic_ns();
      group->barrier();  // the receiver comes
      sent.wait();
      expect_between(before, sent.finished_ns(), observe::monotonic_ns());
    } else {
      group->barrier();
      group->recv(data.data(), data.size(), DataType::f32, 0, 0);
    }
  }));
}

TEST(FinishedAt, OfAFailedReceiveIsNever) {
  LocalWorld world(SharedArena::create(2), 0);
  const auto group = world.group("g", everyone(2));
  float value = 0;
  Work work = group->irecv(&value, 1, DataType::f32, 1, 0, {"late", 20ms});
  EXPECT_THROW(work.wait(), RunError);
  EXPECT_TRUE(work.done());
  EXPECT_EQ(work.finished_ns(), 0);
  EXPECT_EQ(work.sent_ns(), 0);
  EXPECT_EQ(Work().started_ns(), 0);
  EXPECT_EQ(Work().finished_ns(), 0);
}

// ---- when they began

TEST(StartedAt, OfTasksOfOneHelperIsWhenEachWasTakenUp) {
  HelperThread helper;
  std::atomic<bool> go{false};
  const int64_t queued = observe::monotonic_ns();
  const Work first(helper.enqueue([&] { go.wait(false); }));
  Work second(helper.enqueue([] { std::this_thread::sleep_for(5ms); }));
  while (first.started_ns() == 0) std::this_thread::yield();
  EXPECT_EQ(second.started_ns(), 0);  // it waits in the queue
  std::this_thread::sleep_for(20ms);
  go = true;
  go.notify_one();
  second.wait();
  EXPECT_LE(queued, first.started_ns());
  EXPECT_LE(first.started_ns() + 20'000'000, first.finished_ns());
  EXPECT_LE(first.finished_ns(), second.started_ns());  // disjoint
  EXPECT_LE(second.started_ns() + 5'000'000, second.finished_ns());
}

TEST(StartedAt, OfCollectivesQueuedTogetherAreDisjoint) {
  std::atomic<bool> begun{false};  // rank 0 has, before the other came
  expect_no_errors(run_threads(2, [&](World& world) {
    const auto group = world.group("g", everyone(2));
    std::vector<std::vector<float>> data(3, std::vector<float>(100'000, 1.f));
    if (world.rank() == 1) {
      begun.wait(false);
      std::this_thread::sleep_for(20ms);
    }
    std::vector<Work> works;
    for (auto& d : data) works.push_back(group->all_reduce_async(d.data(), d.size(), DataType::f32));
    if (world.rank() == 0) {
      while (works.front().started_ns() == 0) std::this_thread::yield();
      begun = true;
      begun.notify_one();
    }
    works.back().wait();
    int64_t before = 1;
    for (const Work& work : works) {
      expect_between(before, work.started_ns(), work.finished_ns());
      before = work.finished_ns();
    }
    // The first of the rank that came early waited for the other; the second did not.
    if (world.rank() == 0 && works[0].finished_ns() - works[0].started_ns() < 20'000'000)
      throw std::runtime_error("the first did not begin when it was taken up");
  }));
}

TEST(StartedAt, OfASendAtOnceIsTheCallAndOfAReceiveWhenItWasPosted) {
  expect_no_errors(run_threads(2, [](World& world) {
    const auto group = world.group("g", everyone(2));
    const int other = 1 - world.rank();
    int64_t value = 0;
    const int64_t posting = observe::monotonic_ns();
    Work received = group->irecv(&value, 1, DataType::i64, other, 0);
    const int64_t posted = observe::monotonic_ns();
    std::this_thread::sleep_for(5ms);
    group->barrier();
    const int64_t sending = observe::monotonic_ns();
    const Work sent = group->isend(&sending, 1, DataType::i64, other, 0);
    expect_between(sending, sent.started_ns(), sent.finished_ns());
    received.wait();
    expect_between(posting, received.started_ns(), posted);
    if (sent.sent_ns() != 0) throw std::runtime_error("a send has no sender");
  }));
}

// A queued send begins when the one before it has left; a full mailbox holds it back.
TEST(StartedAt, OfASendBehindALongOneIsWhenThatHasLeft) {
  expect_no_errors(run_threads(2, [](World& world) {
    const auto group = world.group("g", everyone(2));
    std::vector<float> data(8 << 20);
    const float small = 1;
    float got = 0;
    if (world.rank() == 0) {
      const Work before = group->isend(data.data(), data.size(), DataType::f32, 1, 0);
      Work behind = group->isend(&small, 1, DataType::f32, 1, 1);
      if (behind.started_ns() != 0) throw std::runtime_error("began before the mailbox had room");
      group->barrier();
      behind.wait();
      expect_between(before.finished_ns(), behind.started_ns(), behind.finished_ns());
      if (before.started_ns() == 0 || before.started_ns() >= before.finished_ns())
        throw std::runtime_error("a long send takes time");
    } else {
      group->barrier();
      group->recv(data.data(), data.size(), DataType::f32, 0, 0);
      group->recv(&got, 1, DataType::f32, 0, 1);
    }
  }));
}

// ---- the sender's time that a message carries

// Rank 0 sends messages and then says when each began; rank 1 must know by itself.
void check_sent_ns(World& world) {
  const auto group = world.group("g", everyone(2));
  // One that fits, one that its receiver skips at first, and one longer than the mailbox.
  const std::vector<size_t> bytes = {1000, 5000, mailbox_bytes(2) + 4000};
  std::vector<std::vector<std::byte>> data;
  for (const size_t b : bytes) data.emplace_back(b);
  std::vector<Work> works;
  std::vector<int64_t> started(bytes.size());
  if (world.rank() == 0) {
    group->barrier();
    for (size_t k = 0; k < bytes.size(); ++k) {
      works.push_back(group->isend(data[k].data(), bytes[k], DataType::u8, 1, static_cast<int>(k)));
      std::this_thread::sleep_for(2ms);
    }
    for (size_t k = 0; k < bytes.size(); ++k) {
      works[k].wait();
      started[k] = works[k].started_ns();
    }
    group->send(started.data(), started.size(), DataType::i64, 1, 9);
    return;
  }
  const auto receive = [&](size_t k) {
    return group->irecv(data[k].data(), bytes[k], DataType::u8, 0, static_cast<int>(k));
  };
  works.resize(bytes.size());
  works[0] = receive(0);
  if (works[0].sent_ns() != 0) throw std::runtime_error("nothing was sent yet");
  group->barrier();
  works[2] = receive(2);
  works[2].wait();  // reads past message 1, which is kept
  works[0].wait();
  const int64_t posting = observe::monotonic_ns();
  works[1] = receive(1);
  group->recv(started.data(), started.size(), DataType::i64, 0, 9);
  for (size_t k = 0; k < bytes.size(); ++k) {
    if (works[k].sent_ns() != started[k]) throw std::runtime_error("message " + std::to_string(k));
    expect_between(std::max(works[k].started_ns(), started[k]), works[k].finished_ns(),
                   observe::monotonic_ns());
  }
  if (works[0].started_ns() >= started[0]) throw std::runtime_error("0 was posted before it was sent");
  expect_between(started[1], posting, works[1].started_ns());
}

TEST(SentAt, TravelsWithTheMessageBetweenThreadsAndProcesses) {
  expect_no_errors(run_threads(2, check_sent_ns));
  expect_no_errors(run_processes(2, check_sent_ns));
}

// The pipe starts over at its beginning many times, so marks lie between the messages.
TEST(SentAt, IsOfItsOwnMessageWhenThePipeWasWoundBack) {
  expect_no_errors(run_threads(2, [](World& world) {
    const auto group = world.group("g", everyone(2));
    std::vector<int64_t> data(20'000);
    for (int k = 0; k < 40; ++k) {
      if (world.rank() == 0) {
        const Work sent = group->isend(data.data(), data.size(), DataType::i64, 1, 0);
        const int64_t started = sent.started_ns();
        group->barrier();
        group->send(&started, 1, DataType::i64, 1, 1);
      } else {
        Work received = group->irecv(data.data(), data.size(), DataType::i64, 0, 0);
        group->barrier();
        received.wait();
        int64_t started = 0;
        group->recv(&started, 1, DataType::i64, 0, 1);
        if (received.sent_ns() != started) throw std::runtime_error("message " + std::to_string(k));
      }
    }
  }));
}

}  // namespace
}  // namespace lockstep::comm::test
