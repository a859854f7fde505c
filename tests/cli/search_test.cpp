// plan --search and bench search, as a person runs them.
#include <gtest/gtest.h>

#include <regex>
#include <sstream>

#include "base/json.hpp"
#include "cli/program.hpp"

namespace lockstep::test {
namespace {

const std::string source = LOCKSTEP_SOURCE_DIR;

Outcome lockstep(const std::vector<std::string>& arguments) { return Program(arguments, source).wait(); }

// The run file's own layout is of 16,384 GPUs and 126 layers.
const std::vector<std::string> search_of_a_small_cluster = {
    "plan",
    "configs/llama3-405b-16k.toml",
    "--search",
    "--set",
    "model.preset=llama3-8b",
    "--set",
    "cluster.gpus=64",
    "--set",
    "train.global_batch=64",
};

Outcome small_search(const std::vector<std::string>& settings, bool json = false) {
  std::vector<std::string> arguments = search_of_a_small_cluster;
  for (const std::string& setting : settings) arguments.insert(arguments.end(), {"--set", setting});
  if (json) arguments.push_back("--json");
  return lockstep(arguments);
}

TEST(PlanSearch, JsonHasTheNamesOfTheInterface) {
  const Outcome outcome = small_search({}, true);
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
  for (const char* part :
       {"layouts evaluated", "about ", "the run file's own", "FSDP alone", "Time against memory"}) {
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
  const Outcome outcome = small_search({"cluster.memory_bytes=1e8"});
  EXPECT_EQ(outcome.code, 1);
  EXPECT_NE(outcome.err.find("fits"), std::string::npos) << outcome.err;
  EXPECT_TRUE(outcome.out.empty());
}

TEST(PlanSearch, NothingFitsIsADocumentToo) {
  const Outcome outcome = small_search({"cluster.memory_bytes=1e8"}, true);
  EXPECT_EQ(outcome.code, 1);
  const Json json = Json::parse(outcome.out);
  EXPECT_TRUE(json["layouts"].empty());
  EXPECT_EQ(json["valid"], 0);
  EXPECT_NE(json["reason"].get<std::string>().find("fits"), std::string::npos);
  EXPECT_FALSE(json["closest"]["memory"]["fits"].get<bool>());
  // No layout of any search of this run takes less, so it is what fits first.
  const double least = json["closest"]["memory"]["total_bytes"].get<double>();
  EXPECT_EQ(small_search({"cluster.memory_bytes=" + std::to_string(0.99 * least)}).code, 1);
  EXPECT_EQ(small_search({"cluster.memory_bytes=" + std::to_string(1.01 * least)}).code, 0);
}

// What the search has no tables for is not dropped without a word.
TEST(PlanSearch, WhatItCannotCountIsRefused) {
  for (const char* setting : {"parallel.recompute_every=2", "parallel.layer_split=cost"}) {
    const Outcome outcome = small_search({"parallel.recompute=full", setting});
    EXPECT_EQ(outcome.code, 2) << setting;
    EXPECT_NE(outcome.err.find("plan --search does not count"), std::string::npos) << outcome.err;
    EXPECT_TRUE(outcome.out.empty());
  }
}

// The settings between the line that announces them and the next empty one, as a shell splits them.
std::vector<std::string> settings_of_the_best(const std::string& text) {
  const size_t begin = text.find(":\n", text.find("best alone")) + 2, end = text.find("\n\n", begin);
  std::string printed = std::regex_replace(text.substr(begin, end - begin), std::regex(R"([\\'\n])"), "");
  std::istringstream words(printed);
  std::vector<std::string> out;
  for (std::string word; words >> word;) out.push_back(word);
  return out;
}

// Whatever it recomputes, and whatever the run file says that the layout cannot have.
TEST(PlanSearch, TheCommandOfTheBestPlansIt) {
  for (const std::vector<std::string>& settings :
       {std::vector<std::string>{"parallel.recompute=full"},
        {"parallel.recompute=[\"norm\",\"swiglu\"]"},
        {"parallel.recompute=none", "parallel.gradient_scatter=micro_batch"},
        {"parallel.reshard_after_forward=false"},
        {"train.batch_ramp=[\"2:5\"]"}}) {
    const Outcome found = small_search(settings);
    ASSERT_EQ(found.code, 0) << found.err;
    std::vector<std::string> arguments = search_of_a_small_cluster;
    std::erase(arguments, "--search");
    for (const std::string& setting : settings) arguments.insert(arguments.end(), {"--set", setting});
    const std::vector<std::string> best = settings_of_the_best(found.out);
    arguments.insert(arguments.end(), best.begin(), best.end());
    const Outcome planned = lockstep(arguments);
    ASSERT_EQ(planned.code, 0) << planned.err;
    const std::string seconds = found.out.substr(found.out.find("The best: ") + 10, 6);
    EXPECT_NE(planned.out.find("\n" + seconds.substr(0, seconds.find(' ')) + " "), std::string::npos)
        << seconds << planned.out;
  }
}

TEST(PlanSearch, KeepsToWhatFlagsGiveAndSaysSo) {
  const Outcome text = small_search({"parallel.tp=2", "parallel.schedule=gpipe"});
  ASSERT_EQ(text.code, 0) << text.err;
  EXPECT_NE(text.out.find("parallel.tp = 2, parallel.schedule = \"gpipe\""), std::string::npos) << text.out;
  const Json json = Json::parse(small_search({"parallel.tp=2", "parallel.schedule=gpipe"}, true).out);
  ASSERT_FALSE(json["layouts"].empty());
  for (const Json& one : json["layouts"]) {
    EXPECT_EQ(one["layout"]["tp"], 2);
    EXPECT_EQ(one["layout"]["schedule"], "gpipe");
  }
}

// A search is of one batch; steps of a ramp are smaller.
TEST(PlanSearch, SaysThatItLeavesOutTheBatchRamp) {
  const std::vector<std::string> ramp = {"train.batch_ramp=[\"32:100\"]"};
  EXPECT_NE(small_search(ramp).out.find("train.batch_ramp is left out"), std::string::npos);
  EXPECT_EQ(small_search({}).out.find("batch_ramp"), std::string::npos);
  const Json with = Json::parse(small_search(ramp, true).out),
             without = Json::parse(small_search({}, true).out);
  EXPECT_EQ(with["ignored"], Json::array({"train.batch_ramp"}));
  EXPECT_EQ(without["ignored"], Json::array());
  EXPECT_EQ(with["layouts"][0]["step"], without["layouts"][0]["step"]);
}

TEST(PlanSearch, HelpFitsATerminal) {
  const Outcome outcome = lockstep({"plan", "--search", "--help"});
  ASSERT_EQ(outcome.code, 0) << outcome.err;
  EXPECT_NE(outcome.out.find("--search"), std::string::npos);
  std::istringstream lines(outcome.out);
  for (std::string line; std::getline(lines, line);) EXPECT_LE(line.size(), 100u) << line;
}

// Standard error is no terminal here.
TEST(PlanSearch, ShowsNoProgressInAFile) { EXPECT_EQ(small_search({}).err, ""); }

TEST(PlanSearch, SaysWhyAShardedModelAloneIsNotValid) {
  const Outcome outcome = small_search({"train.global_batch=32"});
  ASSERT_EQ(outcome.code, 0) << outcome.err;
  const size_t line = outcome.out.find("FSDP alone ");
  ASSERT_NE(line, std::string::npos);
  const std::string flat = std::regex_replace(outcome.out.substr(line), std::regex("\\s+"), " ");
  EXPECT_TRUE(flat.starts_with("FSDP alone train.global_batch: must be a multiple of parallel.dp")) << flat;
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
