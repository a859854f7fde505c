// The launcher, with real processes: tests/resilience/stand_in follows the worker's contract and misbehaves
// on request. After every launch no child may be left; the fixture checks.
#include "resilience/launcher.hpp"

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <fstream>
#include <map>
#include <set>
#include <sstream>
#include <thread>

#include "base/error.hpp"

namespace lockstep::resilience {
namespace {

using namespace std::chrono_literals;
using Kind = LaunchEnd::Kind;
using Clock = std::chrono::steady_clock;

std::set<std::string> named_shared_memory() {
  std::set<std::string> out;
  for (const auto& entry : std::filesystem::directory_iterator("/dev/shm")) out.insert(entry.path());
  return out;
}

// A process that is neither there nor a zombie waiting for its parent.
bool gone(pid_t pid) {
  std::ifstream in("/proc/" + std::to_string(pid) + "/stat");
  std::string text;
  if (!std::getline(in, text)) return true;
  const size_t state = text.rfind(") ");
  return state == std::string::npos || text[state + 2] == 'Z';
}

class LauncherTest : public testing::Test {
 protected:
  void SetUp() override {
    std::string pattern = testing::TempDir() + "launcher-XXXXXX";
    folder_ = mkdtemp(pattern.data());
    plan_.worker = LOCKSTEP_STAND_IN;
    plan_.run_folder = folder_;
    plan_.world_size = 4;
    plan_.grace = 500ms;
    plan_.early_exit_limit = 500ms;
    shared_memory_ = named_shared_memory();
    listener_.started = [this](int rank, pid_t pid) { pids_[rank] = pid; };
    listener_.message = [this](int rank, const observe::WorkerMessage& message) {
      if (std::holds_alternative<observe::ReadyMessage>(message)) ready_.insert(rank);
      if (const auto* step = std::get_if<observe::StepRecord>(&message)) {
        steps_.push_back(step->step);
        if (at_step_) at_step_(step->step);
      }
      if (const auto* final = std::get_if<observe::FinalMessage>(&message)) final_ = *final;
    };
  }

  void TearDown() override {
    EXPECT_EQ(waitpid(-1, nullptr, WNOHANG), -1) << "a child is left";
    EXPECT_EQ(errno, ECHILD);
    for (const auto& [rank, pid] : pids_) EXPECT_NE(kill(pid, 0), 0) << "rank " << rank << " still runs";
    EXPECT_EQ(named_shared_memory(), shared_memory_);
    std::filesystem::remove_all(folder_);
  }

  void script(const std::string& text) { std::ofstream(folder_ / "script.txt") << text; }

  LaunchEnd run() {
    const Clock::time_point start = Clock::now();
    const LaunchEnd end = launch(plan_, listener_);
    seconds_ = std::chrono::duration<double>(Clock::now() - start).count();
    return end;
  }

  std::filesystem::path folder_;
  LaunchPlan plan_;
  LaunchListener listener_;
  std::map<int, pid_t> pids_;
  std::set<int> ready_;
  std::vector<int64_t> steps_;
  std::optional<observe::FinalMessage> final_;
  std::function<void(int64_t)> at_step_;
  double seconds_ = 0;
  std::set<std::string> shared_memory_;
};

TEST_F(LauncherTest, ForwardsEveryMessageAndFinishes) {
  script("steps 5");
  const LaunchEnd end = run();
  EXPECT_EQ(end.kind, Kind::finished) << end.text;
  EXPECT_EQ(ready_, (std::set<int>{0, 1, 2, 3}));
  EXPECT_EQ(steps_, (std::vector<int64_t>{1, 2, 3, 4, 5}));
  ASSERT_TRUE(final_);
  EXPECT_EQ(final_->weights_hash[1], 2u);
  EXPECT_EQ(final_->eval_loss, 0.5);
  EXPECT_FALSE(std::filesystem::exists(folder_ / "logs")) << "empty logs are removed";
}

// Rank 0, whose pipe is closed already, ends while the launcher is busy with the end of rank 1 and after it
// looked at rank 0: its signal must not be taken for one that was answered. Missed, only the grace would end
// the wait.
TEST_F(LauncherTest, AnEndBesideAnotherIsNotMissed) {
  script("steps 100000\n0 2 silent\n1 2 exit3_later");
  plan_.world_size = 2;
  plan_.grace = 15s;
  bool ended_inside = false;
  listener_.ended = [&](int rank) {
    if (rank != 1) return;
    kill(pids_.at(0), SIGKILL);
    siginfo_t info{};
    ended_inside = waitid(P_PID, static_cast<id_t>(pids_.at(0)), &info, WEXITED | WNOWAIT) == 0;
  };
  EXPECT_EQ(run().kind, Kind::failed);
  EXPECT_TRUE(ended_inside) << "rank 0 was gone before: the test did not hit the gap";
  EXPECT_LT(seconds_, 10);
}

TEST_F(LauncherTest, AWorkerGetsTheContractAndNoOtherDescriptor) {
  script("steps 1\n2 1 surroundings");
  setenv("OMP_NUM_THREADS", "7", 1);   // the contract wins
  setenv("MALLOC_ARENA_MAX", "3", 1);  // the user's own wins
  setenv("LOCKSTEP_TEST_KEPT", "yes", 1);
  EXPECT_EQ(run().kind, Kind::finished);
  unsetenv("OMP_NUM_THREADS");
  unsetenv("MALLOC_ARENA_MAX");
  std::ifstream in(folder_ / "surroundings.txt");
  std::multiset<std::string> kinds;
  std::string environment;
  for (std::string line; std::getline(in, line);) {
    if (!line.starts_with("fd ")) {
      environment += line + "\n";
    } else if (line.find("memfd") != std::string::npos) {
      kinds.insert("arena");
    } else {
      kinds.insert(line.substr(3, line.find(':') - 3));
    }
  }
  EXPECT_EQ(environment,
            "RANK=2\nWORLD_SIZE=4\nLOCAL_RANK=2\nLOCAL_WORLD_SIZE=4\nOMP_NUM_THREADS=1\n"
            "OPENBLAS_NUM_THREADS=1\nMKL_NUM_THREADS=1\nMALLOC_TRIM_THRESHOLD_=2147483648\n"
            "MALLOC_MMAP_THRESHOLD_=2147483648\nMALLOC_ARENA_MAX=3\nLOCKSTEP_TEST_KEPT=yes\n");
  const std::string log = (folder_ / "logs/rank-2.log").string();
  // attach() duplicates the arena's descriptor.
  EXPECT_EQ(kinds, (std::multiset<std::string>{"/dev/null", "arena", "arena", "pipe", log, log}));
}

TEST_F(LauncherTest, AKilledWorkerEndsTheRunAtOnceAndIsNamed) {
  script("steps 100000");
  at_step_ = [this](int64_t step) {
    if (step == 3) kill(pids_.at(2), SIGKILL);
  };
  const LaunchEnd end = run();
  EXPECT_EQ(end.kind, Kind::failed);
  EXPECT_EQ(end.rank, 2);
  EXPECT_NE(end.text.find("rank 2 was killed by signal 9 (SIGKILL)"), std::string::npos) << end.text;
  EXPECT_LT(seconds_, 3);
}

TEST_F(LauncherTest, AnyWorkerMayBeTheOneThatDies) {
  for (int victim = 0; victim < 4; ++victim) {
    script("steps 100000\n" + std::to_string(victim) + " 2 segv");
    const LaunchEnd end = run();
    EXPECT_EQ(end.kind, Kind::failed);
    EXPECT_EQ(end.rank, victim) << end.text;
    EXPECT_NE(end.text.find("(SIGSEGV)"), std::string::npos) << end.text;
  }
}

TEST_F(LauncherTest, AnExitCodeComesWithTheEndOfTheLog) {
  script("1 2 exit3");
  const LaunchEnd end = run();
  EXPECT_EQ(end.kind, Kind::failed);
  EXPECT_EQ(end.rank, 1);
  EXPECT_NE(end.text.find("rank 1 ended with exit code 3"), std::string::npos) << end.text;
  EXPECT_NE(end.text.find("first words\nlast words"), std::string::npos) << end.text;
  EXPECT_TRUE(std::filesystem::exists(folder_ / "logs/rank-1.log"));
  EXPECT_FALSE(std::filesystem::exists(folder_ / "logs/rank-2.log"));
}

TEST_F(LauncherTest, AWorkersOwnErrorIsReportedAndNotItsEcho) {
  script("3 2 throw");
  const LaunchEnd end = run();
  EXPECT_EQ(end.kind, Kind::failed);
  EXPECT_EQ(end.rank, 3);
  EXPECT_EQ(end.text, "rank 3 failed: the loss is not a number");
}

TEST_F(LauncherTest, AnEarlyGoodExitIsAFailure) {
  script("steps 100000\n1 2 exit0");
  const LaunchEnd end = run();
  EXPECT_EQ(end.kind, Kind::failed);
  EXPECT_EQ(end.rank, 1);
  EXPECT_NE(end.text.find("before the run was over"), std::string::npos) << end.text;
}

TEST_F(LauncherTest, NoResultIsAFailure) {
  script("0 1 exit0\n1 1 exit0\n2 1 exit0\n3 1 exit0");
  const LaunchEnd end = run();
  EXPECT_EQ(end.kind, Kind::failed);
  EXPECT_NE(end.text.find("without a result"), std::string::npos) << end.text;
}

TEST_F(LauncherTest, AWorkerThatDoesNotEndIsKilledAfterTheGrace) {
  script("1 2 stop\n2 2 hang\n3 2 segv");
  const LaunchEnd end = run();
  EXPECT_EQ(end.kind, Kind::failed);
  EXPECT_EQ(end.rank, 3) << end.text;
  EXPECT_GE(seconds_, 0.5);
  EXPECT_LT(seconds_, 3);
}

TEST_F(LauncherTest, GarbageOnThePipeIsAFailureOfThatRank) {
  script("2 2 garbage");
  const LaunchEnd end = run();
  EXPECT_EQ(end.kind, Kind::failed);
  EXPECT_EQ(end.rank, 2) << end.text;
  EXPECT_NE(end.text.find("this is no message"), std::string::npos) << end.text;
}

TEST_F(LauncherTest, ASignalInterruptsTheRun) {
  for (const int number : {SIGINT, SIGTERM, SIGHUP}) {
    script("steps 100000");
    at_step_ = [number](int64_t step) {
      if (step == 2) kill(getpid(), number);
    };
    const LaunchEnd end = run();
    EXPECT_EQ(end.kind, Kind::interrupted) << end.text;
    EXPECT_EQ(end.signal, number);
    EXPECT_LT(seconds_, 3);
  }
}

TEST_F(LauncherTest, AWorkerThatIgnoresTheInterruptIsKilled) {
  script("steps 100000\n1 1 ignore_term");
  at_step_ = [](int64_t step) {
    if (step == 2) kill(getpid(), SIGINT);
  };
  EXPECT_EQ(run().kind, Kind::interrupted);
  EXPECT_LT(seconds_, 3);
}

TEST_F(LauncherTest, AnExceptionOfTheListenerEndsTheWorkers) {
  script("steps 100000");
  at_step_ = [](int64_t step) {
    if (step == 2) throw RunError("the disk is full");
  };
  EXPECT_THROW(launch(plan_, listener_), RunError);
}

TEST_F(LauncherTest, AProgramThatCannotBeStartedIsNamed) {
  plan_.worker = folder_ / "absent";
  const LaunchEnd end = run();
  EXPECT_EQ(end.kind, Kind::failed);
  EXPECT_NE(end.text.find("cannot start " + plan_.worker.string() + ": No such file"), std::string::npos)
      << end.text;
}

TEST_F(LauncherTest, ChildrenAreSeenAlsoWhenSigchldWasIgnored) {
  script("steps 2");
  std::signal(SIGCHLD, SIG_IGN);
  EXPECT_EQ(run().kind, Kind::finished);
  EXPECT_EQ(std::signal(SIGCHLD, SIG_DFL), SIG_IGN) << "the caller's setting comes back";
}

TEST_F(LauncherTest, RefusesToForkOnceThereAreThreads) {
  std::atomic<bool> stop{false};
  std::thread other([&] {
    while (!stop) std::this_thread::sleep_for(1ms);
  });
  EXPECT_THROW(launch(plan_, listener_), std::logic_error);
  stop = true;
  other.join();
}

TEST_F(LauncherTest, KillingTheLauncherLeavesNoWorker) {
  script("steps 100000");
  int ends[2];
  ASSERT_EQ(pipe(ends), 0);
  const pid_t launcher = fork();
  if (launcher == 0) {
    LaunchListener listener;
    listener.started = [&](int, pid_t pid) {
      if (write(ends[1], &pid, sizeof pid) < 0) _exit(9);
    };
    launch(plan_, listener);
    _exit(0);
  }
  std::vector<pid_t> workers(4);
  for (pid_t& pid : workers) {
    ASSERT_EQ(read(ends[0], &pid, sizeof pid), static_cast<ssize_t>(sizeof pid));
    EXPECT_FALSE(gone(pid));
  }
  kill(launcher, SIGKILL);
  waitpid(launcher, nullptr, 0);
  close(ends[0]);
  close(ends[1]);
  const Clock::time_point limit = Clock::now() + 2s;
  for (const pid_t pid : workers) {
    while (!gone(pid) && Clock::now() < limit) std::this_thread::sleep_for(5ms);
    EXPECT_TRUE(gone(pid));
  }
}

}  // namespace
}  // namespace lockstep::resilience
