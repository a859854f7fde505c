// Every claim: its verdict, and its value against arithmetic done here or by hand.
#include <gtest/gtest.h>

#include <cmath>
#include <filesystem>
#include <fstream>
#include <map>
#include <regex>
#include <set>
#include <sstream>

#include "facts/all_facts.hpp"

namespace lockstep::facts {
namespace {

struct Expected {
  std::string verdict;
  std::vector<double> computed;  // empty: no number
  double within = 1e-9;          // relative
};

// N = 405e9, 15.6e12 tokens, 16,384 GPUs at 400 TFLOP/s.
const std::map<std::string, Expected>& expected() {
  const double year = 365.25 * 24 * 3600;
  const double layer = 2.0 * 16384 * 16384 + 2.0 * 16384 * 1024 + 3.0 * 16384 * 53248 + 2.0 * 16384;
  static const std::map<std::string, Expected> all = {
      {"params", {"holds", {2.0 * 128256 * 16384 + 126 * layer + 16384}}},
      {"weights", {"holds", {810}}},
      {"state", {"holds", {6.48}}},
      {"flops", {"holds", {3.7908e25}}},
      {"one-gpu", {"holds", {3.8e25 / 400e12 / year}}},
      {"gpu-years", {"holds", {3.8e25 / 400e12 / year}}},
      {"cluster-days", {"holds", {3.8e25 / 400e12 / 16384 / 86400}}},
      {"step-tokens", {"holds", {16777216}}},
      {"step-tokens-a", {"inconsistent", {2048}}},
      {"step-time", {"holds", {6 * 405e9 * 16777216 / (16384 * 400e12)}}},
      {"layout-8k", {"holds", {16384}}},
      {"layout-128k", {"holds", {16384}}},
      {"stages", {"holds", {126}}},
      {"replica-racks", {"off", {8}}},
      {"nvlink", {"holds", {450}}},
      {"nic-ratio", {"holds", {9}}},
      {"pod", {"holds", {3072, 24576}}},
      {"oversub", {"published", {}}},
      {"peak", {"holds", {989.5}}},
      {"ring-bytes", {"holds", {1.75, 254.0 / 128}}},
      {"ring-time", {"holds", {19.84375 / 50, 19.84375 / 450}}},
      {"ring-rounds", {"holds", {32766}}},
      {"tree-rounds", {"holds", {28}}},
      {"rounds-ratio", {"holds", {32766.0 / 28}}},
      {"tp-allreduce", {"holds", {2, 2}}},
      {"bubble", {"holds", {1500.0 / 31, 1500.0 / 79, 1500.0 / 143}}},
      {"bubble-4x", {"off", {1500.0 / 79}}},
      {"bubble-10", {"off", {1500.0 / 143}}},
      {"interleave", {"holds", {15.0 / 128}}},
      {"zero1", {"holds", {(4 + 12.0 / 128) / 16}}},
      {"mfu", {"holds", {43000 / 989.5, 40000 / 989.5, 38000 / 989.5}}},
      {"mfu-range", {"off", {43, 41, 38}, 0.04}},  // P, table 4, in the project's target for steps
      {"fwd-bwd", {"off", {2}}},
      // 405.85e9 / 16,384 parameters, each fp32 gradient, master and two moments read, three written, bf16
      // written: 30 bytes. Shards are padded a little.
      {"optimizer", {"off", {405853388800.0 / 16384 * 30 / 3.35e12 * 1e3}, 0.01}},
      {"interruptions", {"holds", {466}}},
      {"per-day", {"holds", {466.0 / 54}}},
      {"causes", {"holds", {419}}},
      {"hw-share", {"holds", {32400.0 / 419}}},
      {"gpu-share", {"off", {26800.0 / 419}}},
      {"gpu-count-a", {"off", {268}}},
      {"mtbf", {"off", {4}}},
      {"young", {"holds", {std::sqrt(1670.0)}}},
      {"save-cost", {"inconsistent", {100 * std::sqrt(10.0 / 167)}}},
      {"save-10", {"off", {100.0 / 3}}},
      {"price", {"published", {}}},
      {"delay", {"off", {1e4 * 49000 / 3600}}},
      {"idle-minute", {"inconsistent", {49000.0 / 60}}},
      {"cooling", {"inconsistent", {}}},
      {"effective", {"published", {}}},
      {"manual", {"published", {3}}},
      {"diloco", {"holds", {500}}},
      {"megascale", {"published", {}}},
      {"pass-rate", {"inconsistent", {}}},
  };
  return all;
}
// What the step's seconds decide.
const std::set<std::string> simulated = {"power", "swing"};

TEST(Claims, HaveTheValuesAndVerdictsWorkedOutByHand) {
  size_t found = 0;
  for (const Fact& fact : all_facts()) {
    if (simulated.contains(fact.id)) continue;
    ASSERT_TRUE(expected().contains(fact.id)) << fact.id;
    ++found;
    const Expected& e = expected().at(fact.id);
    EXPECT_EQ(to_string(fact.verdict()), e.verdict) << fact.id;
    ASSERT_EQ(fact.figures.size(), e.computed.size()) << fact.id;
    for (size_t i = 0; i < e.computed.size(); ++i) {
      EXPECT_NEAR(fact.figures[i].computed / e.computed[i], 1, e.within) << fact.id;
    }
  }
  EXPECT_EQ(found, expected().size());
  EXPECT_EQ(all_facts().size(), expected().size() + simulated.size());
}

// GPUs between all waiting and all computing, hosts, network, PUE 1.1: whatever the step's seconds are.
TEST(Claims, PowerAndSwingLieBetweenWhatGpusCanDraw) {
  const double rest = 2048 * 3000.0 + 16384 * 60.0;
  const Fact& power = find("power");
  const double megawatts = power.figures.at(0).computed;
  EXPECT_GT(megawatts, 1.1 * (16384 * 300.0 + rest) / 1e6) << "it mostly computes";
  EXPECT_LT(megawatts, 1.1 * (16384 * 700.0 + rest) / 1e6);
  EXPECT_EQ(power.verdict(), megawatts >= 16 && megawatts <= 20 ? Verdict::holds : Verdict::off);
  const double swing = find("swing").figures.at(0).computed;
  EXPECT_GT(swing, 1) << "all wait for the last gradients at the end of a step";
  EXPECT_LE(swing, 16384 * (700.0 - 120.0) / 1e6 + 1e-9);
  EXPECT_EQ(find("swing").verdict(), Verdict::off) << "all GPUs' 9.5 MW cannot swing by 10";
}

// What single lines must say beside the value.
TEST(Claims, SayWhatElseTheListAsksFor) {
  const std::vector<std::pair<std::string, std::string>> said = {{"weights", "more than ten"},
                                                                 {"state", "6.49 TB"},
                                                                 {"state", "81 GPUs"},
                                                                 {"gpu-years", "2,422"},
                                                                 {"step-tokens", "131,072"},
                                                                 {"step-tokens-a", "49.8 s"},
                                                                 {"step-tokens-a", "67 MB"},
                                                                 {"step-time", "6.46 s"},
                                                                 {"mfu-range", "fitted to two of these rows"},
                                                                 {"layout-128k", "8,192 GPUs"},
                                                                 {"oversub", "21.9 TB/s"},
                                                                 {"ring-rounds", "32.8 ms"},
                                                                 {"tree-rounds", "128"},
                                                                 {"mtbf", "2.78"},
                                                                 {"mtbf", "3.09"},
                                                                 {"young", "37.6"},
                                                                 {"save-cost", "24.5 %"},
                                                                 {"save-cost", "3.2 s"},
                                                                 {"gpu-share", "35.3 %"},
                                                                 {"delay", "1.10M steps"},
                                                                 {"delay", "$1.50M"},
                                                                 {"price", "$2.99"},
                                                                 {"effective", "16.7 min"},
                                                                 {"bubble", "48.4 %"},
                                                                 {"power", "11.5 MW"},
                                                                 {"swing", "9.5"},
                                                                 {"flops", "405e9"}};
  for (const auto& [id, words] : said) {
    EXPECT_NE(find(id).why.en.find(words), std::string::npos) << id << ": " << find(id).why.en;
  }
}

// The simulator's bubbles of nearly equal stages, which the reasons quote, are near the closed form.
TEST(Claims, TheSimulatedBubblesAreNearTheClosedForm) {
  const std::string why = find("bubble").why.en;
  const size_t at = why.rfind("equal stages ");
  ASSERT_NE(at, std::string::npos) << why;
  const std::vector<double> shares = numbers(why.substr(at));
  ASSERT_EQ(shares.size(), 3u) << why;
  EXPECT_NEAR(shares[0], 48.4, 0.5);
  EXPECT_NEAR(shares[1], 19.0, 0.5);
  EXPECT_NEAR(shares[2], 10.5, 0.5);
}

// --- against the list of claims itself, where it is present

struct Row {
  std::string reach, verdict;
};
std::map<std::string, Row> listed(std::istream& in) {
  std::map<std::string, Row> rows;
  for (std::string line; std::getline(in, line);) {
    std::vector<std::string> cells;
    std::istringstream cut(line);
    for (std::string cell; std::getline(cut, cell, '|');) {
      const size_t first = cell.find_first_not_of(' ');
      cells.push_back(
          first == std::string::npos ? "" : cell.substr(first, cell.find_last_not_of(' ') - first + 1));
    }
    if (cells.size() < 7 || cells[1] == "id" || cells[1].starts_with("-")) continue;
    rows[cells[1]] = {cells[5], cells[6]};
  }
  return rows;
}

// Half a unit of the last digit of a number as it is written; of whole thousands their zeros do not count.
double half_a_unit(const std::string& number) {
  const size_t e = number.find('e');
  const std::string digits = number.substr(0, e);
  double unit = 1;
  if (const size_t point = digits.find('.'); point != std::string::npos) {
    unit = std::pow(10.0, -static_cast<double>(digits.size() - point - 1));
  } else {
    for (size_t i = digits.size(); i > 1 && (digits[i - 1] == '0' || digits[i - 1] == ','); --i) {
      if (digits[i - 1] == '0') unit *= 10;
    }
  }
  return 0.5000001 * unit * (e == std::string::npos ? 1 : std::pow(10.0, std::stod(number.substr(e + 1))));
}

std::vector<std::string> written_numbers(const std::string& text) {
  static const std::regex number(R"([0-9][0-9,]*(\.[0-9]+)?(e[0-9]+)?)");
  std::vector<std::string> out;
  for (std::sregex_iterator it(text.begin(), text.end(), number), end; it != end; ++it) {
    std::string one = it->str();
    while (one.ends_with(",")) one.pop_back();
    out.push_back(one);
  }
  return out;
}

TEST(Claims, AreAllThoseOfTheListWithItsVerdictsAndValues) {
  const std::filesystem::path list = LOCKSTEP_SOURCE_DIR "/../shared/reference/facts.md";
  std::ifstream in(list);
  if (!in) GTEST_SKIP() << "the list of claims is not here: " << list;
  const std::map<std::string, Row> rows = listed(in);
  EXPECT_GT(rows.size(), 50u);
  std::set<std::string> ids;
  for (const Fact& fact : all_facts()) ids.insert(fact.id);
  for (const auto& [id, row] : rows) {
    ASSERT_TRUE(ids.contains(id)) << id;
    const Fact& fact = find(id);
    if (row.verdict != "as computed") {
      EXPECT_TRUE(row.verdict.starts_with(to_string(fact.verdict()))) << id << ": " << row.verdict;
    }
    // The words that stand for a value: "same", "equal", "in range", "computed", "air", "under 1 ms", "-".
    const std::vector<std::string> values = written_numbers(row.reach);
    if (values.empty() || fact.figures.empty() || row.reach.starts_with("under")) continue;
    ASSERT_GE(values.size(), fact.figures.size()) << id << ": " << row.reach;
    for (size_t i = 0; i < fact.figures.size(); ++i) {
      EXPECT_NEAR(fact.figures[i].computed, numbers(values[i]).at(0), half_a_unit(values[i]))
          << id << ": " << row.reach;
    }
  }
  EXPECT_LT(find("optimizer").figures.at(0).computed, 1) << "under 1 ms";
  EXPECT_EQ(ids.size(), rows.size());
}

}  // namespace
}  // namespace lockstep::facts
