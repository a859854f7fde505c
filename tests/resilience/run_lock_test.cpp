#include "resilience/run_lock.hpp"

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>

#include "base/error.hpp"

namespace lockstep::resilience {
namespace {

class RunLockTest : public testing::Test {
 protected:
  RunLockTest() {
    std::string pattern = testing::TempDir() + "run-lock-XXXXXX";
    folder_ = mkdtemp(pattern.data());
  }
  ~RunLockTest() override { std::filesystem::remove_all(folder_); }

  std::filesystem::path folder_;
};

TEST_F(RunLockTest, IsHeldWhileTheObjectLives) {
  EXPECT_FALSE(RunLock::held(folder_));
  {
    const RunLock lock(folder_);
    EXPECT_TRUE(RunLock::held(folder_));
    EXPECT_THROW(RunLock{folder_}, RunError);
  }
  EXPECT_FALSE(RunLock::held(folder_));
}

TEST_F(RunLockTest, TheKernelLetsGoWhenTheHolderIsKilled) {
  int ends[2];
  ASSERT_EQ(pipe(ends), 0);
  const pid_t holder = fork();
  if (holder == 0) {
    const RunLock lock(folder_);
    if (write(ends[1], "x", 1) == 1) pause();
    _exit(0);
  }
  char byte = 0;
  ASSERT_EQ(read(ends[0], &byte, 1), 1);
  EXPECT_TRUE(RunLock::held(folder_));
  kill(holder, SIGKILL);
  waitpid(holder, nullptr, 0);
  close(ends[0]);
  close(ends[1]);
  EXPECT_FALSE(RunLock::held(folder_));
}

TEST_F(RunLockTest, AFolderThatIsNotThereIsAnError) {
  EXPECT_THROW(RunLock{folder_ / "absent"}, RunError);
  EXPECT_FALSE(RunLock::held(folder_ / "absent"));
}

}  // namespace
}  // namespace lockstep::resilience
