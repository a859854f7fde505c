// `lockstep runs export` of runs that skipped steps, met NaN and infinity, or never came to an end.
#include <gtest/gtest.h>

#include <algorithm>
#include <limits>
#include <sstream>

#include "base/json.hpp"
#include "cli/program.hpp"
#include "observe/run_folder.hpp"
#include "observe/run_store.hpp"

namespace lockstep::test {
namespace {

constexpr double nan_value = std::numeric_limits<double>::quiet_NaN();
constexpr double infinity = std::numeric_limits<double>::infinity();

observe::StepRecord step(int64_t number, double loss, double norm) {
  observe::StepRecord r;
  r.step = number;
  r.loss = loss;
  r.grad_norm = norm;
  r.tokens = 2048;
  r.mfu = 0.1 * static_cast<double>(number);
  r.memory_bytes = 1 << 20;
  return r;
}

std::vector<std::string> lines_of(const std::string& text) {
  std::vector<std::string> lines;
  std::istringstream in(text);
  for (std::string line; std::getline(in, line);) lines.push_back(line);
  return lines;
}

std::vector<std::string> fields_of(const std::string& line) {
  std::vector<std::string> fields(1);
  for (const char c : line) c == ',' ? void(fields.emplace_back()) : fields.back().push_back(c);
  return fields;
}

class RunsExport : public testing::Test {
 protected:
  RunsExport() {
    store_.append_step(step(1, 5.5, 0.1), {{0, 1, {}}});
    observe::StepRecord skipped = step(2, nan_value, infinity);
    skipped.skipped = true;
    skipped.waits = observe::StepWaits{{.tp = 0.5}, {.tp = 0.5, .dp = 0.25}};
    store_.append_step(skipped);
    store_.append_step(step(3, 1.0 / 3, -infinity));
    store_.set_meta("state", "running");  // and nobody holds its lock: a launcher that was killed
  }
  std::string exported(const std::vector<std::string>& more = {}) const {
    std::vector<std::string> words = {"runs", "export", run_.path().string()};
    words.insert(words.end(), more.begin(), more.end());
    const Outcome outcome = lockstep(words);
    EXPECT_EQ(outcome.code, 0) << outcome.err;
    return outcome.out;
  }

  TemporaryFolder folder_;
  observe::RunFolder run_ = observe::RunFolder::create_at(folder_.path() / "run", "name = \"x\"\n");
  observe::RunStore store_ = observe::RunStore::create(run_.database());
};

TEST_F(RunsExport, JsonIsValidWithNullForWhatJsonLacks) {
  const Json list = Json::parse(exported({"--json"}));  // throws at a bare NaN
  ASSERT_EQ(list.size(), 3u);
  EXPECT_EQ(list[0]["loss"], 5.5);
  EXPECT_EQ(list[0]["skipped"], false);
  EXPECT_TRUE(list[0]["exposed_tp"].is_null()) << "its waits did not all come";
  EXPECT_TRUE(list[1]["loss"].is_null());
  EXPECT_TRUE(list[1]["grad_norm"].is_null());
  EXPECT_EQ(list[1]["skipped"], true);
  EXPECT_EQ(list[1]["exposed_tp"], 0.5);
  EXPECT_EQ(list[1]["under_way_dp"], 0.25);
  EXPECT_EQ(list[2]["loss"].get<double>(), 1.0 / 3);
}

TEST_F(RunsExport, CsvHasAnEmptyFieldForNanAndKeepsInfinities) {
  const auto lines = lines_of(exported());
  ASSERT_EQ(lines.size(), 4u);
  const auto names = fields_of(lines[0]);
  const auto value = [&](size_t line, const std::string& name) {
    const auto fields = fields_of(lines[line]);
    EXPECT_EQ(fields.size(), names.size());
    const auto at = std::find(names.begin(), names.end(), name);
    EXPECT_NE(at, names.end()) << name;
    return fields.at(static_cast<size_t>(at - names.begin()));
  };
  EXPECT_EQ(value(1, "loss"), "5.5");
  EXPECT_EQ(value(1, "exposed_tp"), "");
  EXPECT_EQ(value(2, "loss"), "");
  EXPECT_EQ(value(2, "grad_norm"), "inf");
  EXPECT_EQ(value(2, "skipped"), "true");
  EXPECT_EQ(value(2, "under_way_dp"), "0.25");
  EXPECT_EQ(std::stod(value(3, "loss")), 1.0 / 3);
  EXPECT_EQ(value(3, "grad_norm"), "-inf");
}

// The store is still open, as of a run that goes on; then a step is written again, as by a run that went
// back.
TEST_F(RunsExport, ShowsWhatIsThereOfARunThatDidNotEnd) {
  const Json rows = Json::parse(lockstep({"runs", "--dir", folder_.path().string(), "--json"}).out);
  EXPECT_EQ(rows[0]["state"], "killed");
  EXPECT_EQ(rows[0]["steps_done"], 3);
  store_.append_step(step(3, 0.25, 1));
  store_.append_step(step(4, 0.125, 1));
  const Json list = Json::parse(exported({"--json"}));
  ASSERT_EQ(list.size(), 4u);
  EXPECT_EQ(list[2]["loss"], 0.25);
  EXPECT_EQ(list[3]["step"], 4);
}

}  // namespace
}  // namespace lockstep::test
