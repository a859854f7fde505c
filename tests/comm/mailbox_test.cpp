// Point to point: order, tags, sizes beyond the mailbox, sends that cross.
#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>
#include <stdexcept>

#include "comm/group_memory.hpp"
#include "ranks.hpp"

namespace lockstep::comm::test {
namespace {

std::vector<int64_t> pattern(size_t n, int seed) {
  std::vector<int64_t> values(n);
  std::iota(values.begin(), values.end(), int64_t{seed} << 40);
  return values;
}

void expect_pattern(const std::vector<int64_t>& got, int seed) {
  if (got != pattern(got.size(), seed))
    throw std::runtime_error("message " + std::to_string(seed) + " arrived wrong");
}

std::vector<int64_t> receive(Communicator& group, size_t n, int from, int tag) {
  std::vector<int64_t> data(n);
  group.recv(data.data(), n, DataType::i64, from, tag);
  return data;
}

void send(Communicator& group, size_t n, int to, int tag, int seed) {
  const auto data = pattern(n, seed);
  group.send(data.data(), n, DataType::i64, to, tag);  // buffered: `data` may go
}

// Sizes from nothing to several times the mailbox, so that the pipe wraps, winds back, fills and streams.
void stream(World& world) {
  const auto group = world.group("g", {0, 1});
  const std::vector<size_t> sizes = {0,       1, 7,         8, 1000,      32'768, 33'000,
                                     131'072, 1, 1'000'003, 0, 5'000'000, 40'000};
  for (int repeat = 0; repeat < 3; ++repeat)
    for (size_t i = 0; i < sizes.size(); ++i) {
      if (world.rank() == 0)
        send(*group, sizes[i], 1, 3, static_cast<int>(i));
      else
        expect_pattern(receive(*group, sizes[i], 0, 3), static_cast<int>(i));
    }
}

TEST(Mailbox, StreamsMessagesOfAnySizeInOrder) {
  expect_no_errors(run_threads(2, stream));
  expect_no_errors(run_processes(2, stream));
}

TEST(Mailbox, TagsMayBeReceivedInAnyOrder) {
  expect_no_errors(run_threads(2, [](World& world) {
    const auto group = world.group("g", {0, 1});
    const int messages = 40;
    if (world.rank() == 0) {
      for (int tag = 0; tag < messages; ++tag) send(*group, 2000, 1, tag, tag);
      for (int k = 0; k < 3; ++k) send(*group, 10, 1, 99, k);
    } else {
      for (int tag = messages - 1; tag >= 0; --tag) expect_pattern(receive(*group, 2000, 0, tag), tag);
      for (int k = 0; k < 3; ++k) expect_pattern(receive(*group, 10, 0, 99), k);  // one tag: in order
    }
  }));
}

TEST(Mailbox, ReceivesPostedEarlyAreMatchedInTheOrderOfPosting) {
  expect_no_errors(run_threads(2, [](World& world) {
    const auto group = world.group("g", {0, 1});
    if (world.rank() == 0) {
      group->barrier();
      for (int k = 0; k < 3; ++k) send(*group, 50'000, 1, 5, k);
      send(*group, 10, 1, 6, 6);
    } else {
      std::vector<std::vector<int64_t>> data(3, std::vector<int64_t>(50'000));
      std::vector<Work> works;
      for (auto& d : data) works.push_back(group->irecv(d.data(), d.size(), DataType::i64, 0, 5));
      if (works[0].done()) throw std::runtime_error("done before it was sent");
      group->barrier();
      expect_pattern(receive(*group, 10, 0, 6), 6);
      for (int k = 2; k >= 0; --k) works[static_cast<size_t>(k)].wait();
      for (int k = 0; k < 3; ++k) expect_pattern(data[static_cast<size_t>(k)], k);
      if (!works[0].done()) throw std::runtime_error("not done after wait");
    }
  }));
}

TEST(Mailbox, ADroppedReceiveLeavesItsMessageToTheNext) {
  expect_no_errors(run_threads(
      2,
      [](World& world) {
        const auto group = world.group("g", {0, 1});
        if (world.rank() == 0) {
          group->barrier();
          send(*group, 6'000'000, 1, 5, 1);  // longer than the mailbox, so it can be caught half way
        } else {
          std::vector<int64_t> data(6'000'000);
          {
            const Work dropped = group->irecv(data.data(), data.size(), DataType::i64, 0, 5);
            group->barrier();
            while (!dropped.done() && data[0] == 0) {
            }
          }
          data.assign(data.size(), -1);
          expect_pattern(receive(*group, 6'000'000, 0, 5), 1);
        }
      },
      false));
}

// Each sends far more than a mailbox holds before it receives anything.
void cross(World& world) {
  const int n = world.size(), me = world.rank();
  const auto group = world.group("g", everyone(n));
  const size_t count = 3 * mailbox_bytes(n) / sizeof(int64_t);
  for (int step = 1; step < n; ++step) send(*group, count, (me + step) % n, 1, me);
  for (int step = 1; step < n; ++step) {
    const int from = (me + step) % n;
    expect_pattern(receive(*group, count, from, 1), from);
  }
}

TEST(Mailbox, SendsThatCrossNeverDeadlock) {
  expect_no_errors(run_threads(2, cross));
  expect_no_errors(run_processes(3, cross));
}

TEST(Mailbox, AsynchronousSendsKeepTheirOrder) {
  expect_no_errors(run_threads(2, [](World& world) {
    const auto group = world.group("g", {0, 1});
    const size_t large = mailbox_bytes(2) / sizeof(int64_t);
    if (world.rank() == 0) {
      std::vector<std::vector<int64_t>> data;
      for (int k = 0; k < 6; ++k) data.push_back(pattern(k % 2 == 0 ? large : 10, k));
      std::vector<Work> works;
      for (const auto& d : data) works.push_back(group->isend(d.data(), d.size(), DataType::i64, 1, 4));
      send(*group, 3, 1, 4, 6);
      for (Work& w : works) w.wait();
    } else {
      for (int k = 0; k < 6; ++k) expect_pattern(receive(*group, k % 2 == 0 ? large : 10, 0, 4), k);
      expect_pattern(receive(*group, 3, 0, 4), 6);
    }
  }));
}

// A small asynchronous send needs no partner and no thread: the handle is done when it is returned.
TEST(Mailbox, ASmallAsynchronousSendIsDoneAtOnce) {
  expect_no_errors(run_threads(2, [](World& world) {
    const auto group = world.group("g", {0, 1});
    if (world.rank() == 0) {
      const auto data = pattern(10'000, 1);
      const Work work = group->isend(data.data(), data.size(), DataType::i64, 1, 4);
      if (!work.done()) throw std::runtime_error("not done");
      group->barrier();
    } else {
      group->barrier();
      expect_pattern(receive(*group, 10'000, 0, 4), 1);
    }
  }));
}

TEST(Mailbox, SendsRunBesideCollectivesOfTheSameGroup) {
  expect_no_errors(run_threads(3, [](World& world) {
    const auto group = world.group("g", everyone(3));
    const int me = world.rank();
    for (int k = 0; k < 50; ++k) {
      std::vector<float> sums(20'000, static_cast<float>(me));
      Work reduction = group->all_reduce_async(sums.data(), sums.size(), DataType::f32);
      send(*group, 3000, (me + 1) % 3, k, k);
      expect_pattern(receive(*group, 3000, (me + 2) % 3, k), k);
      reduction.wait();
      if (sums != std::vector<float>(20'000, 3.f)) throw std::runtime_error("all_reduce");
    }
  }));
}

// Draws a traffic pattern, the same on all ranks, and lets receivers take tags in another order than sent.
void random_traffic(World& world) {
  const int n = world.size(), me = world.rank();
  const auto group = world.group("g", everyone(n));
  uint64_t state = 12345;
  const auto draw = [&](uint64_t below) {
    state = state * 6364136223846793005u + 1442695040888963407u;
    return (state >> 33) % below;
  };
  for (int round = 0; round < 30; ++round) {
    struct Planned {
      int from, to, tag;
      size_t count;
    };
    std::vector<Planned> planned;
    for (int k = 0; k < 12; ++k) {
      const int from = static_cast<int>(draw(static_cast<uint64_t>(n)));
      const int to = (from + 1 + static_cast<int>(draw(static_cast<uint64_t>(n) - 1))) % n;
      planned.push_back({from, to, k, draw(4) == 0 ? draw(400'000) : draw(500)});
    }
    for (const Planned& p : planned)
      if (p.from == me) send(*group, p.count, p.to, p.tag, p.tag);
    std::rotate(planned.begin(), planned.begin() + static_cast<std::ptrdiff_t>(draw(12)), planned.end());
    for (const Planned& p : planned)
      if (p.to == me) expect_pattern(receive(*group, p.count, p.from, p.tag), p.tag);
  }
}

TEST(Mailbox, RandomTrafficArrivesWhole) {
  expect_no_errors(run_threads(4, random_traffic));
  expect_no_errors(run_processes(5, random_traffic));
}

}  // namespace
}  // namespace lockstep::comm::test
