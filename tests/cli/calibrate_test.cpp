// `lockstep calibrate`: what it refuses before it measures anything. tests/cli_train lets it measure.
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <cstdlib>
#include <fstream>

#include "cli/program.hpp"

namespace lockstep::test {
namespace {

class CalibrateRefuses : public testing::Test {
 protected:
  void expect(const std::vector<std::string>& more, const std::string& text) const {
    std::vector<std::string> words = {"calibrate"};
    words.insert(words.end(), more.begin(), more.end());
    const auto before = listing(folder_.path());
    const Outcome outcome = lockstep(words, folder_.path());
    EXPECT_EQ(outcome.code, 2) << outcome.err;
    EXPECT_NE(outcome.err.find(text), std::string::npos) << outcome.err;
    EXPECT_EQ(listing(folder_.path()), before);
  }
  TemporaryFolder folder_;
};

TEST_F(CalibrateRefuses, ToOverwriteWhatItDidNotWrite) {
  write_run_file(folder_.path() / "run.toml");
  expect({"--output", "run.toml"}, "no file that `lockstep calibrate` wrote");
  std::ofstream(folder_.path() / "cluster.toml") << "[cluster]\n";
  expect({}, "--output cluster.toml");
}

// A device gives no end of bytes, a pipe none at all.
TEST_F(CalibrateRefuses, WhatIsNoRegularFile) {
  ASSERT_EQ(mkfifo((folder_.path() / "pipe").c_str(), 0600), 0);
  for (const char* file : {"/dev/full", "/dev/zero", "/dev/null", "pipe"}) {
    expect({"--output", file}, "no regular file");
  }
  expect({"--output", "."}, "is a folder");
}

TEST_F(CalibrateRefuses, AFolderForTemporaryFilesThatIsNotThere) {
  if (!has_worker()) GTEST_SKIP() << "this build has no trainer, which is looked for first";
  const char* before = std::getenv("TMPDIR");
  const std::string kept = before == nullptr ? "" : before;
  setenv("TMPDIR", "/nowhere/at/all", 1);
  expect({"--quick"}, "set TMPDIR to one that you may write to");
  before == nullptr ? unsetenv("TMPDIR") : setenv("TMPDIR", kept.c_str(), 1);
}

TEST_F(CalibrateRefuses, AFolderThatIsNotThere) {
  expect({"--output", "nowhere/cluster.toml"}, "there is no folder");
}

TEST_F(CalibrateRefuses, WorkersAndTypesThatAreNone) {
  expect({"--workers", "1"}, "--workers");
  expect({"--workers", "2,2"}, "once");
  expect({"--workers", "257"}, "--workers");
  expect({"--dtype", "fp8"}, "must be bf16, fp32 or fp64");
}

}  // namespace
}  // namespace lockstep::test
