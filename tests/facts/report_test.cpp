#include "facts/report.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <regex>
#include <set>
#include <sstream>

#include "base/error.hpp"
#include "base/json.hpp"
#include "base/terminal_text.hpp"
#include "facts/all_facts.hpp"

namespace lockstep::facts {
namespace {

TEST(Verdicts, FollowTheRule) {
  EXPECT_TRUE(digits(38, 1).agrees(38.9));
  EXPECT_TRUE(digits(38, 1).agrees(39.0));
  EXPECT_FALSE(digits(38, 1).agrees(39.1));
  EXPECT_TRUE(digits(1.24, 0.01, 0.05).agrees(1.30));
  EXPECT_TRUE(about(3000).agrees(3299));
  EXPECT_FALSE(about(3000).agrees(3301));
  EXPECT_FALSE(over(1000).agrees(1000));
  EXPECT_TRUE(over(1000).agrees(1000.001));
  EXPECT_FALSE(below(10).agrees(10));
  EXPECT_TRUE(between(16, 20).agrees(16));
  EXPECT_FALSE(between(16, 20).agrees(20.1));
  Fact fact;
  fact.figures = {{digits(1, 0.1), 1}, {digits(2, 0.1), 3}};
  EXPECT_EQ(fact.verdict(), Verdict::off) << "all figures must agree";
  EXPECT_DOUBLE_EQ(fact.difference().value(), 0.5);
  fact.decided = Verdict::published;
  EXPECT_EQ(fact.verdict(), Verdict::published);
}

TEST(Report, LinesHaveAtMostAHundredColumns) {
  for (const Language language : {Language::en, Language::zh}) {
    std::istringstream text(facts_text(all_facts(), language, {}));
    size_t lines = 0;
    for (std::string line; std::getline(text, line); ++lines) EXPECT_LE(columns(line), 100u) << line;
    EXPECT_GT(lines, 150u);
  }
}

// The words of a formula that belong to a language: not symbols, units, keys of run files or names of code.
std::string english_words(const std::string& text) {
  static const std::regex word(R"([A-Za-z_][A-Za-z0-9_./]*)");
  static const std::set<std::string> of_any = {"sqrt", "collective", "ring", "rank", "reduce", "false"};
  std::string out;
  for (std::sregex_iterator it(text.begin(), text.end(), word), end; it != end; ++it) {
    const std::string one = it->str();
    const bool lower =
        one.size() > 3 && std::all_of(one.begin(), one.end(), [](char c) { return c >= 'a' && c <= 'z'; });
    if (lower && !of_any.contains(one)) out += one + " ";
  }
  return out;
}

TEST(Report, EveryClaimHasAllItsWordsInBothLanguages) {
  std::set<std::string> ids;
  for (const Fact& fact : all_facts()) {
    EXPECT_TRUE(ids.insert(fact.id).second) << fact.id;
    for (const Words* words : {&fact.claim, &fact.stated, &fact.why}) {
      EXPECT_FALSE(words->en.empty()) << fact.id;
      EXPECT_FALSE(words->zh.empty()) << fact.id;
    }
    EXPECT_EQ(fact.shown.en.empty(), fact.shown.zh.empty()) << fact.id;
    EXPECT_NE(columns(fact.claim.zh), fact.claim.zh.size()) << fact.id << ": no Chinese";
    EXPECT_EQ(fact.why.en.find("，"), std::string::npos) << fact.id << ": Chinese in English";
    for (const std::string* text :
         {&fact.formula.en, &fact.formula.zh, &fact.inputs.en, &fact.inputs.zh, &fact.command}) {
      EXPECT_FALSE(text->empty()) << fact.id;
    }
    for (const Words* words : {&fact.formula, &fact.inputs}) {
      EXPECT_EQ(english_words(words->zh), "") << fact.id << ": " << words->zh;
      // Alike only where there is nothing to translate.
      EXPECT_TRUE(words->en != words->zh || english_words(words->en).empty()) << fact.id;
    }
    EXPECT_EQ(fact.command.find("lockstep "), 0u) << fact.id;
    EXPECT_EQ(fact.why.en.find('\n'), std::string::npos) << "one line";
  }
}

TEST(Report, JsonHasNumbersWhereThereAreSome) {
  const Json list = facts_json(all_facts(), Language::en);
  ASSERT_EQ(list.size(), all_facts().size());
  for (const Json& one : list) {
    for (const char* name : {"id", "claim", "stated", "computed", "unit", "verdict", "why"}) {
      EXPECT_TRUE(one.contains(name)) << one.dump();
    }
  }
  const auto of = [&](const std::string& id) {
    for (const Json& one : list) {
      if (one["id"] == id) return one;
    }
    return Json();
  };
  EXPECT_EQ(of("params")["computed"], 405853388800.0);
  EXPECT_EQ(of("params")["stated"], 405e9);
  EXPECT_EQ(of("mfu")["stated"], Json::parse("[43.0, 41.0, 38.0]"));
  EXPECT_EQ(of("cooling")["computed"], "air");
  EXPECT_TRUE(of("megascale")["computed"].is_null());
  EXPECT_EQ(of("power")["stated"], "16-20 MW");
  EXPECT_EQ(of("bubble-4x")["stated"], "negligible");
  EXPECT_TRUE(of("bubble-4x")["difference"].is_null());
  EXPECT_EQ(of("megascale")["verdict"], "published");
}

TEST(Report, MarkdownHasARowForEachClaim) {
  for (const Language language : {Language::en, Language::zh}) {
    std::istringstream text(facts_markdown(all_facts(), language));
    std::set<std::string> ids;
    for (std::string line; std::getline(text, line);) {
      if (!line.starts_with("| `")) continue;
      ids.insert(line.substr(3, line.find('`', 3) - 3));
      EXPECT_EQ(std::count(line.begin(), line.end(), '|'), 8) << line;
    }
    EXPECT_EQ(ids.size(), all_facts().size());
  }
}

TEST(Report, ExplanationHasFormulaInputsSourceAndCommand) {
  const std::string text = explanation(find("bubble"), Language::en, {});
  for (const char* part : {"(p - 1) / (m + p - 1)", "p = 16; m = 16, 64, 128", "an interactive page",
                           "lockstep simulate configs/llama3-405b-16k.toml"}) {
    EXPECT_NE(text.find(part), std::string::npos) << text;
  }
  EXPECT_NE(explanation(find("bubble"), Language::zh, {}).find("公式"), std::string::npos);
}

TEST(Report, AnUnknownClaimNamesTheNearest) {
  try {
    find_fact(all_facts(), "buble");
    FAIL();
  } catch (const UsageError& error) {
    EXPECT_NE(std::string(error.what()).find("the nearest is bubble"), std::string::npos) << error.what();
  }
}

}  // namespace
}  // namespace lockstep::facts
