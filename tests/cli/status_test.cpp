// docs/status.md says what works and what is absent; the program has the last word.
#include <gtest/gtest.h>

#include <fstream>
#include <map>
#include <regex>
#include <sstream>

#include "base/json.hpp"
#include "cli/program.hpp"

namespace lockstep::test {
namespace {

// Rows "| `name` | works | ... |" of the table under a heading.
std::map<std::string, bool> table_under(const std::string& heading) {
  std::ifstream in(std::string(LOCKSTEP_SOURCE_DIR) + "/docs/status.md");
  std::map<std::string, bool> rows;
  const std::regex row(R"(\| `([^`]+)` \| (works|absent) \|.*)");
  bool inside = false;
  for (std::string line; std::getline(in, line);) {
    if (line.starts_with("## ")) inside = line == "## " + heading;
    std::smatch match;
    if (inside && std::regex_match(line, match, row)) rows[match[1]] = match[2] == "works";
  }
  return rows;
}

TEST(Status, CommandsAreThoseOfTheProgram) {
  std::map<std::string, bool> program;
  const Json doctor = Json::parse(lockstep({"doctor", "--json"}).out);
  for (const Json& feature : doctor.at("features")) {
    program[feature.at("name").get<std::string>()] = feature.at("built").get<bool>();
  }
  EXPECT_EQ(table_under("Commands"), program);
}

TEST(Status, RunFileValuesAreTakenOrRefusedAsTheTableSays) {
  const auto rows = table_under("Run-file values");
  EXPECT_GT(rows.size(), 20u);
  for (const auto& [values, works] : rows) {
    std::vector<std::string> arguments{"plan", tiny().string()};
    std::istringstream words(values);
    for (std::string word; words >> word;) arguments.insert(arguments.end(), {"--set", word});
    const Outcome outcome = lockstep(arguments);
    EXPECT_EQ(outcome.code, works ? 0 : 2) << values << "\n" << outcome.err;
    EXPECT_EQ(outcome.err.find("not built yet") != std::string::npos, !works) << values << "\n"
                                                                              << outcome.err;
  }
}

}  // namespace
}  // namespace lockstep::test
