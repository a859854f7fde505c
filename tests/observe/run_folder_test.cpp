#include "observe/run_folder.hpp"

#include <gtest/gtest.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <set>

#include "base/error.hpp"
#include "observe/atomic_file.hpp"
#include "observe/run_store.hpp"
#include "observe/temporary_folder.hpp"

namespace lockstep::observe {
namespace {

namespace fs = std::filesystem;
using testing::message_of;
using testing::read_text;
using testing::TemporaryFolder;
using testing::write_text;

std::set<std::string> names_in(const fs::path& folder) {
  std::set<std::string> names;
  for (const auto& entry : fs::directory_iterator(folder)) names.insert(entry.path().filename().string());
  return names;
}

const std::set<std::string> whole = {"run.toml", "trace", "flight", "checkpoints"};

// "tiny-20261129-142205-00af3c" as "tiny-dddddddd-dddddd-xxxxxx": digits as d, the last six hex digits as x.
std::string shape(std::string name) {
  for (size_t i = 0; i < name.size(); ++i) {
    const bool digit = name[i] >= '0' && name[i] <= '9';
    const bool hex = digit || (name[i] >= 'a' && name[i] <= 'f');
    if (i + 6 >= name.size() && hex) {
      name[i] = 'x';
    } else if (digit) {
      name[i] = 'd';
    }
  }
  return name;
}

TEST(RunFolder, IsNamedAndFilled) {
  const TemporaryFolder folder;
  const RunFolder run = RunFolder::create(folder / "runs", "tiny", "name = \"tiny\"\n");
  EXPECT_EQ(shape(run.path().filename().string()), "tiny-dddddddd-dddddd-xxxxxx") << run.path();
  EXPECT_EQ(run.path().parent_path(), folder / "runs");
  EXPECT_EQ(names_in(run.path()), whole);
  EXPECT_EQ(read_text(run.run_toml()), "name = \"tiny\"\n");
  EXPECT_TRUE(fs::is_directory(run.trace()) && fs::is_directory(run.flight()) &&
              fs::is_directory(run.checkpoints()));
}

TEST(RunFolder, RunsOfOneSecondDiffer) {
  const TemporaryFolder folder;
  std::set<fs::path> paths;
  for (int i = 0; i < 20; ++i) paths.insert(RunFolder::create(folder.path(), "a", "").path());
  EXPECT_EQ(paths.size(), 20u);
}

TEST(RunFolder, AGivenPlaceMayBeNewOrEmpty) {
  const TemporaryFolder folder;
  EXPECT_EQ(names_in(RunFolder::create_at(folder / "deep/new", "x").path()), whole);
  fs::create_directory(folder / "empty");
  EXPECT_EQ(RunFolder::create_at(folder / "empty", "x").path(), folder / "empty");
  EXPECT_EQ(names_in(folder / "empty"), whole);

  fs::create_directory(folder / "full");
  write_text(folder / "full/mine.txt", "keep");
  write_text(folder / "file", "keep");
  for (const char* taken : {"full", "file", "empty"}) {
    const std::string message = message_of<UsageError>([&] { RunFolder::create_at(folder / taken, "x"); });
    EXPECT_NE(message.find("--run-dir"), message.npos) << taken;
    EXPECT_NE(message.find("Give a new one"), message.npos) << message;
  }
  EXPECT_EQ(names_in(folder / "full"), std::set<std::string>{"mine.txt"});
  EXPECT_EQ(read_text(folder / "file"), "keep");
}

TEST(RunFolder, NamesThatAreNoFolderNamesAreRefused) {
  const TemporaryFolder folder;
  for (const char* name : {"", "../up", "a/b", ".hidden", "-rf", "sp ace", "new\nline", "日本"}) {
    EXPECT_THROW(RunFolder::create(folder.path(), name, ""), UsageError) << name;
  }
  EXPECT_TRUE(fs::is_empty(folder.path()));
}

TEST(RunFolder, AFailedCreationLeavesNothing) {
  const TemporaryFolder folder;
  write_text(folder / "file", "");
  EXPECT_THROW(RunFolder::create(folder / "file", "tiny", ""), RunError);
  EXPECT_EQ(read_text(folder / "file"), "");
}

// A file size limit of nothing stands in for a full disk: folders can still be made, run.toml cannot be
// written.
TEST(RunFolder, AFullDiskHalfWayLeavesNothing) {
  const TemporaryFolder folder;
  fs::create_directory(folder / "empty");
  fs::create_directory(folder / "runs");
  const pid_t child = fork();
  if (child == 0) {
    signal(SIGXFSZ, SIG_IGN);
    const rlimit limit{0, 0};
    setrlimit(RLIMIT_FSIZE, &limit);
    const auto fails = [](const auto& call) { return !message_of<RunError>(call).empty(); };
    const bool all = fails([&] { RunFolder::create(folder / "runs", "tiny", "text"); }) &&
                     fails([&] { RunFolder::create_at(folder / "new", "text"); }) &&
                     fails([&] { RunFolder::create_at(folder / "empty", "text"); });
    _exit(all ? 0 : 1);
  }
  int status = 0;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0);
  EXPECT_EQ(names_in(folder.path()), (std::set<std::string>{"empty", "runs"}));
  EXPECT_TRUE(fs::is_empty(folder / "runs"));
  EXPECT_TRUE(fs::is_empty(folder / "empty"));
}

TEST(RunFolder, OpensOnlyRunFolders) {
  const TemporaryFolder folder;
  const RunFolder made = RunFolder::create_at(folder / "run", "x");
  EXPECT_NE(message_of<UsageError>([&] { RunFolder::open(made.path()); }).find("run.db"), std::string::npos);
  { RunStore::create(made.database()); }
  EXPECT_EQ(RunFolder::open(made.path()).path(), made.path());
  EXPECT_NE(message_of<UsageError>([&] { RunFolder::open(folder / "absent"); }).find("absent"),
            std::string::npos);
}

TEST(AtomicFile, ReplacesOrLeavesAlone) {
  const TemporaryFolder folder;
  write_file_atomically(folder / "f", "one");
  write_file_atomically(folder / "f", std::string("t\0o", 3));
  EXPECT_EQ(read_text(folder / "f"), std::string("t\0o", 3));
  EXPECT_EQ(names_in(folder.path()), std::set<std::string>{"f"});
  fs::create_directories(folder / "d/inside");
  EXPECT_THROW(write_file_atomically(folder / "d", "x"), RunError);  // a folder is in the way
  EXPECT_EQ(names_in(folder.path()), (std::set<std::string>{"d", "f"}));
  EXPECT_THROW(write_file_atomically(folder / "absent/f", "x"), RunError);
}

}  // namespace
}  // namespace lockstep::observe
