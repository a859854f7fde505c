// What a person sees first: help, its cost, unknown words, and commands that are not built.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <sstream>

#include "base/json.hpp"
#include "base/terminal_text.hpp"
#include "cli/commands.hpp"
#include "cli/program.hpp"

namespace lockstep::test {
namespace {

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
constexpr bool sanitized = true;  // costs time and memory that the program itself does not
#else
constexpr bool sanitized = false;
#endif

TEST(Help, IsThereInFiftyMillisecondsAndThirtyMebibytes) {
  if (sanitized) GTEST_SKIP() << "measured on the release build";
  std::vector<double> seconds;
  int64_t peak = 0;
  for (int i = 0; i < 15; ++i) {
    const Outcome outcome = lockstep({"--help"});
    ASSERT_EQ(outcome.code, 0) << outcome.err;
    seconds.push_back(outcome.seconds);
    peak = std::max(peak, outcome.peak_bytes);
  }
  std::sort(seconds.begin(), seconds.end());
  // The lower quartile: other tests run beside this one.
  EXPECT_LT(seconds[3], 0.050);
  EXPECT_LT(peak, 30 * 1024 * 1024);
  RecordProperty("milliseconds", static_cast<int>(seconds[7] * 1000));
}

TEST(Help, ListsWhatIsBuiltAndNamesWhatIsNot) {
  const std::string text = lockstep({"--help"}).out;
  for (const cli::Feature& feature : cli::features()) {
    const std::string row = "  " + std::string(feature.name) + " ";
    if (feature.built) {
      EXPECT_NE(text.find(row), std::string::npos) << feature.name;
      EXPECT_NE(text.find(feature.does), std::string::npos) << feature.name;
    } else {
      EXPECT_EQ(text.find("\n" + row), std::string::npos) << feature.name;
    }
  }
  const size_t absent = text.find("not built yet:");
  ASSERT_NE(absent, std::string::npos);
  for (const char* name : {"campaign", "sample", "diagnose", "data", "checkpoint", "serve"}) {
    EXPECT_NE(text.find(name, absent), std::string::npos) << name;
  }
}

TEST(Help, EveryBuiltCommandHasItsOwnWithDefaultsAndAnExample) {
  for (const cli::Feature& feature : cli::features()) {
    if (!feature.built || feature.name.find("--") != std::string_view::npos) continue;
    std::vector<std::string> words;
    std::string name(feature.name);
    for (size_t space; (space = name.find(' ')) != std::string::npos; name = name.substr(space + 1)) {
      words.push_back(name.substr(0, space));
    }
    words.push_back(name);
    words.push_back("--help");
    const Outcome outcome = lockstep(words);
    EXPECT_EQ(outcome.code, 0) << feature.name << outcome.err;
    EXPECT_EQ(outcome.out.find("lockstep " + std::string(feature.name) + ": "), 0u) << outcome.out;
    EXPECT_NE(outcome.out.find("example:\n  lockstep " + std::string(feature.name)), std::string::npos)
        << outcome.out;
    EXPECT_TRUE(outcome.err.empty()) << outcome.err;
  }
}

void expect_narrow(const std::vector<std::string>& words) {
  const Outcome outcome = lockstep(words);
  EXPECT_EQ(outcome.code, 0) << outcome.err;
  std::istringstream lines(outcome.out);
  for (std::string line; std::getline(lines, line);) {
    EXPECT_LE(columns(line), terminal_columns) << testing::PrintToString(words) << "\n" << line;
  }
}

TEST(Help, NoLineIsWiderThanAHundredColumns) {
  expect_narrow({"--help"});
  for (const cli::Feature& feature : cli::features()) {
    if (!feature.built || feature.name.find("--") != std::string_view::npos) continue;
    std::istringstream cut{std::string(feature.name)};
    std::vector<std::string> words;
    for (std::string word; cut >> word;) words.push_back(word);
    words.emplace_back("--help");
    expect_narrow(words);
  }
  const std::string large = LOCKSTEP_SOURCE_DIR "/configs/llama3-405b-16k.toml";
  expect_narrow({"plan", large});
  expect_narrow({"bench", "search", "--seconds", "1"});
  expect_narrow({"validate", "--rows"});
}

TEST(Help, CommandsOfTheInterfaceThatAreNotBuiltSaySo) {
  for (const cli::Feature& feature : cli::features()) {
    if (feature.built) continue;
    std::vector<std::string> words;
    std::string name(feature.name);
    for (size_t space; (space = name.find(' ')) != std::string::npos; name = name.substr(space + 1)) {
      words.push_back(name.substr(0, space));
    }
    words.push_back(name);
    // A flag stands after the run file.
    if (feature.name.find("--") != std::string_view::npos) words.insert(words.begin() + 1, tiny().string());
    TemporaryFolder folder;
    const Outcome outcome = lockstep(words, folder.path());
    EXPECT_EQ(outcome.code, 2) << feature.name;
    EXPECT_NE(outcome.err.find("`lockstep " + std::string(feature.name) + "` is not built yet"),
              std::string::npos)
        << feature.name << ": " << outcome.err;
    EXPECT_NE(outcome.err.find("docs/status.md"), std::string::npos) << outcome.err;
    EXPECT_TRUE(outcome.out.empty());
    EXPECT_TRUE(listing(folder.path()).empty());
  }
}

TEST(Help, AnUnknownWordNamesTheNearest) {
  const std::vector<std::pair<std::vector<std::string>, std::string>> cases = {
      {{"trian"}, "nearest is `lockstep train`"},
      {{"simluate", "x.toml"}, "nearest is `lockstep simulate`"},
      {{"bench", "colective"}, "nearest is `lockstep bench collective`"},
      {{"train", "x.toml", "--sett", "a=b"}, "nearest is --set"},
      {{"train", "x.toml", "--jsno"}, "nearest is --json"},
      {{"train", "--rundir=x", "x.toml"}, "nearest is --run-dir"},
      {{"--hlep"}, "nearest is --help"},
      {{"train"}, "needs RUN.toml"},
      {{"train", "a.toml", "b.toml"}, "\"b.toml\""},
      {{"train", "a.toml", "--set"}, "TABLE.KEY=VALUE missing"},
      {{"plan", tiny().string(), "--json=no"}, "--json=no: the flag takes no value; write --json alone"},
      {{"plan", tiny().string(), "--json="}, "--json=: the flag takes no value"},
      {{"facts", "--markdown=x"}, "--markdown=x: the flag takes no value"},
      {{"plan", "--help=x"}, "--help=x: the flag takes no value"},
      {{"train", "a.toml", "--run-dir", "a", "--run-dir", "b"}, "given 2 times"},
      {{"bench", "collective", "--ranks", "many"}, "\"many\" is not a whole number"},
      {{"bench", "collective", "--ranks", "0"}, "0 is less than 1"},
      {{"bench", "collective", "--bytes", "8,1.5"}, "\"1.5\" is not a whole number"},
  };
  for (const auto& [words, answer] : cases) {
    const Outcome outcome = lockstep(words);
    EXPECT_EQ(outcome.code, 2) << words[0];
    EXPECT_NE(outcome.err.find(answer), std::string::npos) << outcome.err;
    EXPECT_TRUE(outcome.out.empty()) << outcome.out;
  }
}

TEST(Doctor, PrintsTheTableOfFeaturesAsJson) {
  const Outcome outcome = lockstep({"doctor", "--json"});
  ASSERT_EQ(outcome.code, 0) << outcome.err;
  const Json document = Json::parse(outcome.out);
  ASSERT_EQ(document["features"].size(), cli::features().size());
  for (size_t i = 0; i < cli::features().size(); ++i) {
    EXPECT_EQ(document["features"][i]["name"], cli::features()[i].name);
    EXPECT_EQ(document["features"][i]["built"], cli::features()[i].built);
  }
  bool trainer_seen = false;
  for (const Json& finding : document["findings"]) {
    if (finding["what"] != "trainer") continue;
    trainer_seen = true;
    EXPECT_EQ(finding["good"], has_worker());
  }
  EXPECT_TRUE(trainer_seen);
}

TEST(Output, AClosedOrFullStandardOutputIsNoSuccess) {
  const int full = open("/dev/full", O_WRONLY);
  ASSERT_GE(full, 0);
  const Outcome outcome = Program({"--help"}, "/tmp", full).wait();
  close(full);
  EXPECT_EQ(outcome.code, 1);
  EXPECT_NE(outcome.err.find("No space left"), std::string::npos) << outcome.err;

  int ends[2];
  ASSERT_EQ(pipe(ends), 0);
  close(ends[0]);
  const Outcome broken = Program({"--help"}, "/tmp", ends[1]).wait();
  close(ends[1]);
  EXPECT_TRUE(broken.signal == SIGPIPE || broken.code == 1) << broken.code;
}

}  // namespace
}  // namespace lockstep::test
