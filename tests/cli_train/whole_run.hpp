// A fixture for whole runs: four real workers (TP2 x PP2) of the tiny model, and nothing left behind.
#pragma once

#include <gtest/gtest.h>

#include <chrono>
#include <fstream>
#include <functional>
#include <map>
#include <memory>
#include <set>
#include <sstream>
#include <string>
#include <thread>
#include <vector>

#include "base/json.hpp"
#include "cli/program.hpp"
#include "observe/run_store.hpp"

namespace lockstep::test {

inline constexpr int workers = 4;

inline std::string read_file(const std::filesystem::path& path) {
  std::ifstream in(path);
  std::stringstream text;
  text << in.rdbuf();
  return text.str();
}

// From the environment that the launcher gave it.
inline int rank_of(pid_t pid) {
  std::ifstream in("/proc/" + std::to_string(pid) + "/environ");
  for (std::string entry; std::getline(in, entry, '\0');) {
    if (entry.starts_with("RANK=")) return std::stoi(entry.substr(5));
  }
  return -1;
}

inline bool within(double seconds, const std::function<bool()>& done) {
  const auto limit = std::chrono::steady_clock::now() + std::chrono::duration<double>(seconds);
  while (!done()) {
    if (std::chrono::steady_clock::now() > limit) return false;
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  }
  return true;
}

class WholeRun : public testing::Test {
 protected:
  void SetUp() override {
    shared_memory_ = named_shared_memory();
    write_run_file(folder_.path() / "run.toml", "dp = 2", "dp = 1");
  }
  void TearDown() override {
    EXPECT_EQ(named_shared_memory(), shared_memory_);
    EXPECT_TRUE(end_within(all_workers_, 0.5)) << "a worker is left";
  }

  std::filesystem::path run_dir() const { return folder_.path() / "run"; }

  std::vector<std::string> command(int steps, const std::vector<std::string>& more = {}) const {
    std::vector<std::string> words = {"train", "run.toml", "--run-dir", run_dir().string()};
    for (const std::string& value : {std::string("cluster.gpus=4"), std::string("train.eval_sequences=8"),
                                     "train.steps=" + std::to_string(steps)}) {
      words.insert(words.end(), {"--set", value});
    }
    words.insert(words.end(), more.begin(), more.end());
    return words;
  }

  // A run without an end, once it has printed a step: its workers by rank.
  std::unique_ptr<Program> start_endless(const std::vector<std::string>& more = {}) {
    auto program = std::make_unique<Program>(command(1'000'000, more), folder_.path());
    EXPECT_TRUE(within(60, [&] { return program->out().find("step 2/") != std::string::npos; }))
        << program->err();
    for (const pid_t pid : children_of(program->pid())) by_rank_[rank_of(pid)] = pid;
    for (const auto& [rank, pid] : by_rank_) all_workers_.insert(pid);
    EXPECT_EQ(by_rank_.size(), static_cast<size_t>(workers));
    return program;
  }

  std::string state() const {
    return observe::RunStore::open(run_dir() / "run.db").meta("state").value_or("none");
  }

  // `lockstep runs --json` of the folder.
  Json runs() const {
    const Outcome outcome = lockstep({"runs", "--dir", folder_.path().string(), "--json"});
    EXPECT_EQ(outcome.code, 0) << outcome.err;
    return Json::parse(outcome.out);
  }

  TemporaryFolder folder_;
  std::set<std::string> shared_memory_;
  std::map<int, pid_t> by_rank_;
  std::set<pid_t> all_workers_;
};

}  // namespace lockstep::test
