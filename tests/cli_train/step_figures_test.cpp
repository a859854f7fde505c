// What a run tells of its steps: what communication left exposed, MFU against the measured peak, evaluations
// on the way, steps that were skipped.
#include <algorithm>
#include <cmath>
#include <map>
#include <regex>

#include "cli_train/whole_run.hpp"
#include "config/run_file.hpp"
#include "model/parameters.hpp"

namespace lockstep::test {
namespace {

class StepFigures : public WholeRun {};

using Seconds = observe::ExposedSeconds;
using Axis = double Seconds::*;

// On each axis that has communication, every rank waits and something is under way in every step; and no
// thread can wait for longer than the steps took, in one step or in all. The slack of one step is for ranks
// that begin it while rank 0, whose seconds these are, still ends the one before.
void expect_within_the_steps(const observe::RunStore& store, const std::vector<Axis>& axes) {
  constexpr double slack = 0.05;  // seconds
  double seconds = 0, before = 0;
  std::map<int, double> waited;  // by rank
  for (const observe::StepRecord& step : store.steps()) {
    seconds += step.seconds;
    for (const observe::WaitMessage& one : store.waits(step.step)) {
      const std::string where = "step " + std::to_string(step.step) + ", rank " + std::to_string(one.rank);
      for (const Axis axis : axes) {
        EXPECT_GT(one.waits.exposed.*axis, 0) << where;
        EXPECT_GT(one.waits.under_way.*axis, 0) << where;
        EXPECT_LE(one.waits.exposed.*axis, before + step.seconds + slack) << where;
      }
      EXPECT_LE(one.waits.exposed.total(), before + step.seconds + slack) << where;
      waited[one.rank] += one.waits.exposed.total();
    }
    before = step.seconds;
  }
  EXPECT_EQ(waited.size(), static_cast<size_t>(workers));
  for (const auto& [rank, sum] : waited) EXPECT_LE(sum, seconds + slack) << "rank " << rank;
}

// What every rank waited for, their mean, and both MFU conventions by the measured peak.
void expect_waits_and_mfu(const observe::RunStore& store, const config::RunFile& run) {
  const double peak = std::stod(store.meta("matrix_peak_flops").value_or("0"));
  const int cores = std::stoi(store.meta("matrix_peak_cores").value_or("0"));
  EXPECT_GE(cores, 1);
  EXPECT_LE(cores, workers);
  EXPECT_GT(peak, 1e9);
  EXPECT_LT(peak, 1e13 * cores) << "no core multiplies as fast";
  const double flops = model::flops_per_token(run.model, run.train.sequence, false);
  const double causal = model::flops_per_token(run.model, run.train.sequence, true);
  EXPECT_LT(causal, flops);
  for (const observe::StepRecord& step : store.steps()) {
    EXPECT_NEAR(step.mfu, flops * step.tokens_per_second / peak, 1e-9 * step.mfu);
    EXPECT_NEAR(step.mfu_causal, causal * step.tokens_per_second / peak, 1e-9 * step.mfu);
    EXPECT_FALSE(step.skipped);
    const std::vector<observe::WaitMessage> ranks = store.waits(step.step);
    ASSERT_EQ(ranks.size(), static_cast<size_t>(workers));
    ASSERT_TRUE(step.waits);
    observe::ExposedSeconds sum;
    int64_t fullest = 0;
    for (const observe::WaitMessage& one : ranks) {
      const observe::ExposedSeconds& e = one.waits.exposed;
      EXPECT_EQ(e.cp, 0) << "there is one rank on the axis";
      EXPECT_EQ(one.waits.under_way.cp, 0);
      sum.tp += e.tp / workers;
      sum.pp += e.pp / workers;
      fullest = std::max(fullest, one.resident_bytes);
    }
    EXPECT_EQ(step.memory_bytes, fullest);
    EXPECT_NEAR(step.waits->exposed.tp, sum.tp, 1e-12);
    EXPECT_NEAR(step.waits->exposed.pp, sum.pp, 1e-12);
  }
  expect_within_the_steps(store, {&Seconds::tp, &Seconds::pp});
}

// Each rank's waits as spans, and a counter that has a value for each step and falls to 0 after them.
void expect_exposed_in_trace(const Json& trace, size_t steps) {
  std::map<int, size_t> counters, waits;
  std::map<std::pair<int, int>, std::string> threads;
  for (const Json& event : trace["traceEvents"]) {
    if (event["name"] == "thread_name") threads[{event["pid"], event["tid"]}] = event["args"]["name"];
  }
  for (const Json& event : trace["traceEvents"]) {
    if (event["ph"] == "C" && event["name"] == "exposed ms") ++counters[event["pid"].get<int>()];
    if (event["ph"] != "X" || event["name"] != "wait_pp") continue;
    ++waits[event["pid"].get<int>()];
    EXPECT_EQ((threads[{event["pid"], event["tid"]}]), "exposed");
  }
  EXPECT_EQ(waits.size(), static_cast<size_t>(workers));
  EXPECT_EQ(counters.size(), static_cast<size_t>(workers));
  for (const auto& [rank, count] : counters) EXPECT_EQ(count, steps + 1);
}

TEST_F(StepFigures, SayWhatWasExposedByAxisAndBothMfus) {
  const Outcome outcome = lockstep(
      command(4, {"--set", "train.trace_first_step=2", "--set", "train.trace_steps=2"}), folder_.path());
  ASSERT_EQ(outcome.code, 0) << outcome.err;
  const observe::RunStore store = observe::RunStore::open(run_dir() / "run.db");
  expect_waits_and_mfu(store, config::load_run_file(run_dir() / "run.toml", {}));
  expect_exposed_in_trace(Json::parse(read_file(run_dir() / "trace/trace.json")), 2);
  EXPECT_TRUE(std::regex_search(
      outcome.out,
      std::regex(R"(\nmfu [0-9.]+% with attention counted as full, [0-9.]+% as causal, of the measured )")))
      << outcome.out;
  EXPECT_TRUE(std::regex_search(outcome.out,
                                std::regex(R"(\nexposed \d+%.* of a step, mean over ranks, after step 3)")))
      << outcome.out;

  const auto steps = store.steps();
  const Json exported = Json::parse(lockstep({"runs", "export", run_dir().string(), "--json"}).out);
  EXPECT_EQ(exported[2]["exposed_tp"].get<double>(), steps[2].waits->exposed.tp);
  EXPECT_EQ(exported[2]["under_way_pp"].get<double>(), steps[2].waits->under_way.pp);
  EXPECT_EQ(exported[2]["mfu_causal"].get<double>(), steps[2].mfu_causal);
  EXPECT_EQ(exported[2]["skipped"], false);
}

// Each replica's gradients and parameters travel beside computation.
TEST_F(StepFigures, OfDataParallelSayWhatWasUnderWay) {
  const Outcome outcome =
      lockstep(command(8, {"--set", "parallel.dp=2", "--set", "parallel.tp=1"}), folder_.path());
  ASSERT_EQ(outcome.code, 0) << outcome.err;
  const observe::RunStore store = observe::RunStore::open(run_dir() / "run.db");
  expect_within_the_steps(store, {&Seconds::pp, &Seconds::dp});
  double under_way = 0, seconds = 0;
  for (const observe::StepRecord& step : store.steps()) {
    EXPECT_EQ(step.waits->exposed.tp, 0);
    under_way += step.waits->under_way.dp;
    seconds += step.seconds;
  }
  // One runs after another, however many are queued.
  EXPECT_LE(under_way, seconds + 0.05);
  EXPECT_TRUE(std::regex_search(
      outcome.out,
      std::regex(R"(; hidden beside compute: pp (\d|\d\d|100)% dp (\d|\d\d|100)% of the time under way\n)")))
      << outcome.out;
}

TEST_F(StepFigures, EvaluatesEveryFewStepsAndOnceAtTheEnd) {
  const Outcome outcome = lockstep(
      command(6, {"--set", "train.eval_interval=2", "--set", "train.eval_sequences=0"}), folder_.path());
  ASSERT_EQ(outcome.code, 0) << outcome.err;
  // In the order of the run; the last one is the summary's.
  size_t at = 0;
  for (const char* text : {"step 2/6 ", "held-out loss ", " after step 2\n", "step 3/6 ", "step 4/6 ",
                           "held-out loss ", " after step 4\n", "step 6/6 ", "held-out loss "}) {
    at = outcome.out.find(text, at);
    ASSERT_NE(at, std::string::npos) << text << "\n" << outcome.out;
  }
  EXPECT_EQ(outcome.out.find("after step 6"), std::string::npos);
  const observe::RunStore store = observe::RunStore::open(run_dir() / "run.db");
  const auto evaluations = store.evaluations();
  ASSERT_EQ(evaluations.size(), 3u);
  for (size_t i = 0; i < 3; ++i) EXPECT_EQ(evaluations[i].step, static_cast<int64_t>(2 * i + 2));
  EXPECT_GT(evaluations[0].loss, evaluations[2].loss);
  EXPECT_EQ(std::stod(store.meta("eval_loss").value_or("0")), evaluations[2].loss);
  // Evaluating the whole held-out part takes many steps' time, none of which counts as a step's.
  EXPECT_GT(evaluations[0].tokens, 10 * store.steps()[0].tokens);
  double steps = 0, between = 0;
  for (const auto& step : store.steps()) steps += step.seconds;
  std::vector<double> evaluated_at;
  double ready = 0;
  for (const auto& event : store.events()) {
    if (event.kind == "ready") ready = event.time;
    if (event.kind == "evaluation") evaluated_at.push_back(event.time);
  }
  ASSERT_EQ(evaluated_at.size(), 3u);
  between = evaluated_at[2] - ready;
  EXPECT_LT(steps, 0.8 * between);
}

// A rate that no weights survive: the first update leaves losses that are not finite.
TEST_F(StepFigures, SkippedStepsAreMarkedAndTold) {
  const Outcome outcome = lockstep(
      command(30, {"--set", "train.lr=1e30", "--set", "train.warmup=0", "--set", "train.nonfinite=skip"}),
      folder_.path());
  EXPECT_EQ(outcome.code, 1) << "ten in a row end it";
  EXPECT_TRUE(std::regex_search(outcome.out, std::regex(R"(step 2/30 .*  skipped: .*rank \d)")))
      << outcome.out << outcome.err;
  const observe::RunStore store = observe::RunStore::open(run_dir() / "run.db");
  const auto steps = store.steps();
  ASSERT_GE(steps.size(), 2u);
  EXPECT_FALSE(steps[0].skipped);
  EXPECT_TRUE(steps[1].skipped);
  const auto events = store.events();
  const auto skipped = std::find_if(events.begin(), events.end(),
                                    [](const observe::RunEvent& event) { return event.kind == "skipped"; });
  ASSERT_NE(skipped, events.end());
  EXPECT_EQ(skipped->text.find("step 2: "), 0u) << skipped->text;
  const Json exported = Json::parse(lockstep({"runs", "export", run_dir().string(), "--json"}).out);
  ASSERT_EQ(exported.size(), steps.size());
  EXPECT_EQ(exported[1]["skipped"], true);
  EXPECT_EQ(exported[1]["loss"].is_null(), !std::isfinite(steps[1].loss));
}

}  // namespace
}  // namespace lockstep::test
