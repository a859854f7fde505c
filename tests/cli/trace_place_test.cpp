// Where `simulate --trace` writes, and where it must not: nothing that is not a trace is ever replaced.
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/stat.h>

#include <fstream>

#include "cli/modelled_run.hpp"
#include "cli/program.hpp"
#include "cli/trace_size.hpp"
#include "config/run_file.hpp"
#include "observe/temporary_folder.hpp"

namespace lockstep::test {
namespace {

using testing::read_text;

class TracePlace : public ::testing::Test {
 protected:
  TracePlace() { write_run_file(folder_.path() / "run.toml"); }

  std::filesystem::path write(const std::string& name, const std::string& text) const {
    std::ofstream(folder_.path() / name) << text;
    return folder_.path() / name;
  }
  Outcome simulate(std::vector<std::string> more) const {
    more.insert(more.begin(), {"simulate", "run.toml"});
    return lockstep(more, folder_.path());
  }
  void expect_refused(const std::vector<std::string>& more, const std::string& text) const {
    const auto before = listing(folder_.path());
    const Outcome outcome = simulate(more);
    EXPECT_EQ(outcome.code, 2) << outcome.out;
    EXPECT_TRUE(outcome.out.empty()) << outcome.out;
    EXPECT_NE(outcome.err.find(text), std::string::npos) << outcome.err;
    EXPECT_EQ(listing(folder_.path()), before);
  }

  TemporaryFolder folder_;
};

TEST_F(TracePlace, AnInputStaysAsItIs) {
  const std::string text = "[cluster]\nlaunch_seconds = 1e-6\n";
  const auto cluster = write("cluster.toml", text);
  std::filesystem::create_symlink("cluster.toml", folder_.path() / "link.json");
  std::filesystem::create_hard_link(cluster, folder_.path() / "hard.json");
  expect_refused({"--trace", "run.toml"}, "is run.toml itself");
  for (const char* name : {"cluster.toml", "./cluster.toml", "link.json", "hard.json"}) {
    expect_refused({"--cluster", "cluster.toml", "--trace", name}, "is cluster.toml itself");
    expect_refused({"--trace", name, "--set", "cluster.file=cluster.toml"}, "no trace");
  }
  EXPECT_EQ(read_text(cluster), text);
}

TEST_F(TracePlace, OnlyATraceOrAnEmptyFileIsReplaced) {
  const auto notes = write("notes.md", "mine\n");
  expect_refused({"--trace", "notes.md"}, "--trace notes.md: is there, and no trace");
  EXPECT_EQ(read_text(notes), "mine\n");
  for (const char* name : {"t.json", "t.pftrace", "T.PFTRACE"}) {
    write(name, "");
    EXPECT_EQ(simulate({"--trace", name}).code, 0) << name;
    const std::string first = read_text(folder_.path() / name);
    EXPECT_EQ(simulate({"--trace", name, "--seed", "7"}).code, 0) << name;
    EXPECT_NE(read_text(folder_.path() / name), first) << name;
  }
  // The first packet, not JSON.
  EXPECT_EQ(read_text(folder_.path() / "T.PFTRACE"), read_text(folder_.path() / "t.pftrace"));
}

TEST_F(TracePlace, WhatIsNoRegularFileIsRefusedButADevice) {
  ASSERT_EQ(mkfifo((folder_.path() / "pipe").c_str(), 0600), 0);
  expect_refused({"--trace", "pipe"}, "no regular file");
  expect_refused({"--trace", "."}, "is a folder");
  expect_refused({"--trace", "absent/t.json"}, "there is no folder");
  const Outcome null = simulate({"--trace", "/dev/null"});
  EXPECT_EQ(null.code, 0) << null.err;
  const Outcome full = simulate({"--trace", "/dev/full"});
  EXPECT_EQ(full.code, 1);
  EXPECT_NE(full.err.find("No space left"), std::string::npos) << full.err;
}

// More than any machine of today has room for.
TEST_F(TracePlace, ATraceBeyondThisMachineIsRefusedBeforeItIsMade) {
  const std::vector<std::string> words = {"--trace", "t.json", "--ranks", "0-7", "--steps", "1000000"};
  expect_refused(words, "8 ranks x 1,000,000 steps are");
  expect_refused(words, "name fewer ranks in --ranks, or fewer --steps");
}

TEST_F(TracePlace, TheSizeThatIsToldBeforeIsTheSize) {
  const config::RunFile run = config::load_run_file(folder_.path() / "run.toml", {});
  const parallel::Layout layout(run);
  const cli::TraceSize size =
      cli::trace_size(layout, cli::checked_programs(layout), {0, 1, 2, 3, 4, 5, 6, 7}, 2);
  for (const char* name : {"t.json", "t.pftrace"}) {
    ASSERT_EQ(simulate({"--trace", name, "--ranks", "0-7", "--steps", "2"}).code, 0);
    const auto bytes = static_cast<double>(std::filesystem::file_size(folder_.path() / name));
    EXPECT_GT(size.file_bytes(name), bytes / 2) << name;
    EXPECT_LT(size.file_bytes(name), bytes * 2) << name;
  }
  const std::string trace = read_text(folder_.path() / "t.json"), slice = "\"ph\":\"X\"";
  double slices = 0;
  for (size_t at = trace.find(slice); at != std::string::npos; at = trace.find(slice, at + 1)) ++slices;
  EXPECT_EQ(size.spans, slices);
}

TEST_F(TracePlace, OutOfMemorySaysWhatToReduce) {
#if defined(__SANITIZE_ADDRESS__)
  GTEST_SKIP() << "the sanitizer takes all address space";
#endif
  rlimit before{};
  ASSERT_EQ(getrlimit(RLIMIT_AS, &before), 0);
  const rlimit little{200'000'000, before.rlim_max};
  ASSERT_EQ(setrlimit(RLIMIT_AS, &little), 0);
  const Outcome outcome = lockstep({"simulate", LOCKSTEP_SOURCE_DIR "/configs/llama3-405b-16k.toml", "--set",
                                    "cluster.rack_uplinks=4096", "--set", "cluster.pod_uplinks=4096"});
  ASSERT_EQ(setrlimit(RLIMIT_AS, &before), 0);
  EXPECT_EQ(outcome.code, 1);
  EXPECT_NE(outcome.err.find("lockstep: out of memory"), std::string::npos) << outcome.err;
  EXPECT_NE(outcome.err.find("fewer cluster.rack_uplinks"), std::string::npos) << outcome.err;
}

TEST_F(TracePlace, NotesAndControlCharactersAreForAnyTerminal) {
  const Outcome noted = simulate({"--json", "--set", "simulate.throttled_nodes=0.5"});
  EXPECT_EQ(noted.code, 0);
  EXPECT_EQ(noted.err.find("lockstep: note: without effect: simulate.throttled_nodes = 0.5"), 0u)
      << noted.err;
  EXPECT_EQ(noted.out[0], '{');
  EXPECT_TRUE(simulate({}).err.empty()) << "no bar where there is no terminal";
  const Outcome odd = simulate({"--set", "cluster.gpu=\x1b[31m"});
  EXPECT_EQ(odd.code, 2);
  EXPECT_EQ(odd.err.find('\x1b'), std::string::npos) << odd.err;
  EXPECT_NE(odd.err.find("\\x1B[31m"), std::string::npos) << odd.err;
  write("one.toml", "[cluster]\nlaunch_seconds = 1e-6\n");
  expect_refused({"--cluster", "one.toml", "--set", "cluster.file=one.toml"}, "give one cluster file");
}

}  // namespace
}  // namespace lockstep::test
