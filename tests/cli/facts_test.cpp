// lockstep facts, run as a program.
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <set>
#include <sstream>

#include "base/json.hpp"
#include "cli/program.hpp"
#include "facts/fact.hpp"

namespace lockstep::test {
namespace {

TEST(Facts, AnswersInAFewSecondsWithoutAnyFileBesideIt) {
  const TemporaryFolder folder;
  const Outcome outcome = lockstep({"facts", "--json"}, folder.path());
  ASSERT_EQ(outcome.code, 0) << outcome.err;
  EXPECT_LT(outcome.seconds, 10);
  const Json list = Json::parse(outcome.out);
  ASSERT_TRUE(list.is_array());
  EXPECT_GT(list.size(), 50u);
  EXPECT_EQ(list[0]["id"], "params");
  EXPECT_EQ(list[0]["verdict"], "holds");
}

// docs/facts.md; after a change to figures: lockstep facts --markdown > docs/facts.md
TEST(Facts, ThePageIsCurrent) {
  std::ifstream in(LOCKSTEP_SOURCE_DIR "/docs/facts.md");
  std::stringstream page;
  page << in.rdbuf();
  EXPECT_EQ(page.str(), lockstep({"facts", "--markdown"}).out)
      << "`build/release/lockstep facts --markdown > docs/facts.md` writes it again";
}

// The words of a command before its comment.
std::vector<std::string> words_of(const std::string& command) {
  std::istringstream in(command.substr(0, command.find(" #")));
  std::vector<std::string> words;
  for (std::string word; in >> word;) words.push_back(word);
  return words;
}

TEST(Facts, EveryCommandThatReproducesAClaimWorks) {
  const TemporaryFolder folder;
  std::filesystem::create_symlink(LOCKSTEP_SOURCE_DIR "/configs", folder.path() / "configs");
  std::set<std::vector<std::string>> commands;
  for (const facts::Fact& fact : facts::compute_facts()) {
    std::vector<std::string> words = words_of(fact.command);
    ASSERT_EQ(words.at(0), "lockstep") << fact.id;
    words.erase(words.begin());
    commands.insert(words);
  }
  EXPECT_GT(commands.size(), 20u);
  for (const std::vector<std::string>& words : commands) {
    const Outcome outcome = lockstep(words, folder.path());
    std::string text;
    for (const std::string& word : words) text += word + " ";
    EXPECT_EQ(outcome.code, 0) << text << outcome.err;
  }
}

TEST(Facts, RefusesWhatItDoesNotKnow) {
  const Outcome unknown = lockstep({"facts", "--explain", "ring-round"});
  EXPECT_EQ(unknown.code, 2);
  EXPECT_NE(unknown.err.find("the nearest is ring-rounds"), std::string::npos) << unknown.err;
  EXPECT_EQ(lockstep({"facts", "--lang", "fr"}).code, 2);
  EXPECT_EQ(lockstep({"facts", "--json", "--markdown"}).code, 2);
  const Outcome one = lockstep({"facts", "--explain", "params", "--json"});
  EXPECT_EQ(one.code, 0) << one.err;
  EXPECT_EQ(Json::parse(one.out)["id"], "params");
  EXPECT_NE(lockstep({"facts", "--lang", "zh"}).out.find("成立"), std::string::npos);
}

}  // namespace
}  // namespace lockstep::test
