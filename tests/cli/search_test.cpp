// plan --search and bench search, as a person runs them.
#include <gtest/gtest.h>

#include <sstream>

#include "base/json.hpp"
#include "cli/program.hpp"

namespace lockstep::test {
namespace {

const std::string source = LOCKSTEP_SOURCE_DIR;

Outcome lockstep(const std::vector<std::string>& arguments) { return Program(arguments, source).wait(); }

const std::vector<std::string> search_of_a_small_cluster = {
    "plan",
    "configs/llama3-405b-16k.toml",
    "--search",
    "--set",
    "model.preset=llama3-8b",
    "--set",
    "cluster.gpus=64",
    "--set",
    "parallel.dp=8",
    "--set",
    "parallel.pp=1",
    "--set",
    "parallel.virtual_stages=1",
    "--set",
    "parallel.first_stage_less_layers=0",
    "--set",
    "parallel.last_stage_less_layers=0",
    "--set",
    "train.global_batch=64",
};

TEST(PlanSearch, JsonHasTheNamesOfTheInterface) {
  std::vector<std::string> arguments = search_of_a_small_cluster;
  arguments.push_back("--json");
  const Outcome outcome = lockstep(arguments);
  ASSERT_EQ(outcome.code, 0) << outcome.err;
  const Json json = Json::parse(outcome.out);
  EXPECT_LE(json["valid"].get<int64_t>(), json["evaluated"].get<int64_t>());
  EXPECT_GT(json["wall_seconds"].get<double>(), 0);
  EXPECT_LE(json["wall_seconds"].get<double>(), outcome.seconds);
  ASSERT_EQ(json["layouts"].size(), 20u);
  double before = 0;
  for (const Json& layout : json["layouts"]) {
    for (const char* block : {"layout", "model", "memory", "step"}) EXPECT_TRUE(layout.contains(block));
    EXPECT_TRUE(layout["memory"]["fits"].get<bool>());
    EXPECT_EQ(layout["layout"]["world_size"].get<int64_t>(), 64);
    EXPECT_GE(layout["step"]["seconds"].get<double>(), before);
    before = layout["step"]["seconds"].get<double>();
  }
}

TEST(PlanSearch, TextFitsATerminal) {
  const Outcome outcome = lockstep(search_of_a_small_cluster);
  ASSERT_EQ(outcome.code, 0) << outcome.err;
  std::istringstream lines(outcome.out);
  for (std::string line; std::getline(lines, line);) EXPECT_LE(line.size(), 104u) << line;  // "µ" takes two
  for (const char* part : {"layouts evaluated", "the run file's own", "FSDP alone", "Time against memory"}) {
    EXPECT_NE(outcome.out.find(part), std::string::npos) << part;
  }
}

// The settings that it prints make the best layout, shortened ends of the pipeline and all.
TEST(PlanSearch, TheBestCanBePlannedAlone) {
  const Outcome text = lockstep(search_of_a_small_cluster);
  std::vector<std::string> arguments = search_of_a_small_cluster;
  arguments.push_back("--json");
  const Json best = Json::parse(lockstep(arguments).out)["layouts"][0];
  arguments.erase(arguments.begin() + 2);  // --search
  std::istringstream words(text.out.substr(text.out.find("--set parallel.tp")));
  for (std::string word; words >> word && (word == "--set" || word == "\\");) {
    if (word == "\\") continue;
    words >> word;
    std::erase(word, '\'');
    arguments.insert(arguments.end(), {"--set", word});
  }
  const Outcome alone = lockstep(arguments);
  ASSERT_EQ(alone.code, 0) << alone.err;
  const Json plan = Json::parse(alone.out);
  EXPECT_EQ(plan["step"], best["step"]);
  EXPECT_EQ(plan["memory"], best["memory"]);
}

TEST(PlanSearch, NothingFitsIsAFailureThatSaysWhy) {
  std::vector<std::string> arguments = search_of_a_small_cluster;
  arguments.insert(arguments.end(), {"--set", "cluster.memory_bytes=1e8"});
  const Outcome outcome = lockstep(arguments);
  EXPECT_EQ(outcome.code, 1);
  EXPECT_NE(outcome.err.find("fits"), std::string::npos) << outcome.err;
}

// What the search has no tables for is not dropped without a word.
TEST(PlanSearch, WhatItCannotCountIsRefused) {
  for (const char* setting :
       {"software.overlap_gradients=false", "software.host_seconds_per_launch=1e-5",
        "software.preset=megatron-2021", "parallel.recompute_every=2", "parallel.layer_split=cost"}) {
    std::vector<std::string> arguments = search_of_a_small_cluster;
    arguments.insert(arguments.end(), {"--set", setting});
    const Outcome outcome = lockstep(arguments);
    EXPECT_EQ(outcome.code, 2) << setting;
    EXPECT_NE(outcome.err.find("plan --search does not count it yet"), std::string::npos) << outcome.err;
    EXPECT_TRUE(outcome.out.empty());
  }
}

// A loaded machine makes it slower: the rate that it claims is held against the time that passes outside.
TEST(BenchSearch, CountsWhatItEvaluates) {
  const Outcome outcome = lockstep({"bench", "search", "--seconds", "1", "--json"});
  ASSERT_EQ(outcome.code, 0) << outcome.err;
  const Json json = Json::parse(outcome.out);
  const double evaluated = json["evaluated"].get<double>();
  EXPECT_GT(evaluated / outcome.seconds, 1e5);
  EXPECT_LE(json["wall_seconds"].get<double>(), outcome.seconds);
  EXPECT_NEAR(json["layouts_per_second"].get<double>() * json["wall_seconds"].get<double>(), evaluated, 1);
  for (const Json& one : json["cases"]) {
    EXPECT_GE(one["best"].size(), 1u);
    for (const Json& best : one["best"]) EXPECT_LE(best["total_bytes"].get<double>(), 80e9);
  }
}

}  // namespace
}  // namespace lockstep::test
