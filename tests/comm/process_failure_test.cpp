// Ranks as processes that are killed, exit or get stuck.
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <csignal>
#include <stdexcept>
#include <thread>

#include "base/error.hpp"
#include "comm/process_ranks.hpp"
#include "ranks.hpp"

namespace lockstep::comm::test {
namespace {

using namespace std::chrono_literals;
using Clock = std::chrono::steady_clock;

// A process killed inside a collective, with no chance to say anything.
TEST(ProcessFailure, AKilledProcessEndsTheOthersCollective) {
  const auto errors = run_processes(4, [](World& world) {
    const auto group = world.group("dp", everyone(4));
    std::vector<float> data(4 << 20, 1.f);
    const auto start = Clock::now();
    for (int k = 0;; ++k) {
      if (Clock::now() - start > 20s) throw std::runtime_error("nobody noticed");
      if (world.rank() == 2 && k == 3) {
        std::thread([] {
          std::this_thread::sleep_for(3ms);
          kill(getpid(), SIGKILL);
        }).detach();
      }
      group->all_reduce(data.data(), data.size(), DataType::f32);
    }
  });
  EXPECT_EQ(errors[2], "killed by signal 9");
  for (const size_t r : {0, 1, 3}) {
    expect_contains(errors[r], "global rank 2 died (killed by signal 9); this ended all_reduce #");
    expect_contains(errors[r], "of group 'dp' [0 1 2 3]");
  }
}

// Rank 1 comes last and gets stuck while it reduces for everyone: its own part lies in memory that cannot be
// read, and the signal's handler holds it there.
TEST(ProcessFailure, TheRankThatCameLastAndDidNotFinishIsNamed) {
  const auto errors = run_processes(3, [](World& world) {
    const auto group = world.group("dp", everyone(3));
    group->barrier();
    std::vector<float> readable(1000, 1.f);
    if (world.rank() != 1) {
      group->all_reduce(readable.data(), 1000, DataType::f32, ReduceOp::sum, {"late", 600ms});
      return;
    }
    std::signal(SIGSEGV, [](int) {
      sleep(2);
      _exit(7);
    });
    void* unreadable = mmap(nullptr, 4096, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    std::this_thread::sleep_for(200ms);
    group->all_reduce(unreadable, 1000, DataType::f32, ReduceOp::sum, {"late", 600ms});
  });
  EXPECT_EQ(errors[1], "exited with code 7");
  for (const size_t r : {0, 2}) {
    expect_contains(errors[r], "all_reduce 'late' #1");
    expect_contains(errors[r], "timed out after 600 ms; did not come: global rank 1");
    EXPECT_EQ(errors[r].find("global rank 1, "), std::string::npos) << errors[r];
  }
}

TEST(ProcessFailure, AProcessThatExitsEndsTheOthersWaits) {
  const auto start = Clock::now();
  const auto errors = run_processes(3, [](World& world) {
    if (world.rank() == 2) _exit(0);
    world.group("dp", everyone(3))->barrier();
  });
  EXPECT_LT(Clock::now() - start, 20s);
  for (const size_t r : {0, 1}) expect_contains(errors[r], "global rank 2 died (exited with code 0)");
}

TEST(ProcessFailure, ProcessesThatCannotBeWatchedAreEnded) {
  rlimit before{};
  ASSERT_EQ(getrlimit(RLIMIT_NOFILE, &before), 0);
  const int next = dup(0);  // the lowest free descriptor
  close(next);
  rlimit few = before;
  few.rlim_cur = static_cast<rlim_t>(next) + 1 + 4 + 2;  // the arena, four reports, two of four processes
  ASSERT_EQ(setrlimit(RLIMIT_NOFILE, &few), 0);
  EXPECT_THROW(run_in_processes(4, [](World&) { return pause(), std::string(); }), RunError);
  ASSERT_EQ(setrlimit(RLIMIT_NOFILE, &before), 0);
  errno = 0;
  EXPECT_EQ(waitpid(-1, nullptr, WNOHANG), -1);  // no child is left
  EXPECT_EQ(errno, ECHILD);
  const int after = dup(0);
  close(after);
  EXPECT_EQ(after, next);  // nor a descriptor
}

}  // namespace
}  // namespace lockstep::comm::test
