// `lockstep train` from outside: what it prints, what it leaves, and that it leaves no process and no shared
// memory behind however it ends.
#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <csignal>
#include <regex>

#include "cli_train/whole_run.hpp"
#include "config/run_file.hpp"

namespace lockstep::test {
namespace {

class Train : public WholeRun {};

// The document of `train --json`, against what six steps of this model must do.
void expect_result(const Json& result, const std::filesystem::path& run_dir) {
  std::string names;
  for (const auto& [name, value] : result.items()) names += name + " ";
  EXPECT_EQ(names,
            "steps first_loss last_loss eval_loss weights_hash tokens_per_second restarts run_directory ");
  EXPECT_EQ(result["steps"], 6);
  EXPECT_EQ(result["restarts"], 0);
  EXPECT_EQ(result["run_directory"], run_dir.string());
  EXPECT_NEAR(result["first_loss"].get<double>(), std::log(256.0), 0.1) << "it starts knowing nothing";
  EXPECT_LT(result["last_loss"].get<double>(), result["first_loss"].get<double>() - 0.5);
  EXPECT_LT(result["eval_loss"].get<double>(), result["first_loss"].get<double>() - 0.5);
  EXPECT_TRUE(std::regex_match(result["weights_hash"].get<std::string>(), std::regex("[0-9a-f]{32}")));
}

void expect_store(const std::vector<observe::StepRecord>& steps, const Json& result, double wall_seconds) {
  ASSERT_EQ(steps.size(), 6u);
  EXPECT_EQ(steps.front().loss, result["first_loss"].get<double>());
  EXPECT_EQ(steps.back().loss, result["last_loss"].get<double>());
  double seconds = 0;
  for (const auto& step : steps) {
    EXPECT_EQ(step.tokens, 16 * 128);
    EXPECT_NEAR(step.tokens_per_second * step.seconds, 16 * 128, 1e-6);
    seconds += step.seconds;
  }
  EXPECT_LT(seconds, wall_seconds) << "steps cannot take longer than the whole command";
  std::vector<double> steady;
  for (size_t i = 3; i < 6; ++i) steady.push_back(steps[i].tokens_per_second);
  std::sort(steady.begin(), steady.end());
  EXPECT_EQ(result["tokens_per_second"].get<double>(), steady[1]);
}

void expect_trace(const Json& trace, const std::set<int>& steps) {
  std::set<int> ranks, traced_steps;
  for (const Json& event : trace["traceEvents"]) {
    if (event["ph"] != "X") continue;
    ranks.insert(event["pid"].get<int>());
    if (event["args"].contains("step")) traced_steps.insert(event["args"]["step"].get<int>());
    EXPECT_GE(event["ts"].get<double>(), 0) << "times count from the first span";
  }
  EXPECT_EQ(ranks.size(), static_cast<size_t>(workers));
  EXPECT_EQ(traced_steps, steps);
}

TEST_F(Train, ReportsAsJsonAndLeavesAWholeRunFolder) {
  const Outcome outcome =
      lockstep(command(6, {"--json", "--set", "train.trace_first_step=2", "--set", "train.trace_steps=2"}),
               folder_.path());
  ASSERT_EQ(outcome.code, 0) << outcome.err;
  const Json result = Json::parse(outcome.out);
  expect_result(result, run_dir());
  const auto steps = observe::RunStore::open(run_dir() / "run.db").steps();
  expect_store(steps, result, outcome.seconds);
  EXPECT_EQ(state(), "finished");
  expect_trace(Json::parse(read_file(run_dir() / "trace/trace.json")), {2, 3});
  const config::RunFile resolved = config::load_run_file(run_dir() / "run.toml", {});
  EXPECT_EQ(resolved.parallel.dp, 1);
  EXPECT_EQ(resolved.train.steps, 6);

  const Json row = runs()[0];
  EXPECT_EQ(row["state"], "finished");
  EXPECT_EQ(row["steps_done"], 6);
  EXPECT_EQ(row["last_loss"], result["last_loss"]);
  EXPECT_EQ(row["eval_loss"], result["eval_loss"]);
  const std::string csv = lockstep({"runs", "export", run_dir().string()}).out;
  EXPECT_EQ(std::count(csv.begin(), csv.end(), '\n'), 7);
  const Json exported = Json::parse(lockstep({"runs", "export", run_dir().string(), "--json"}).out);
  EXPECT_EQ(exported[2]["loss"].get<double>(), steps[2].loss);
}

TEST_F(Train, PrintsALineAStepAndWhereTheResultsLie) {
  const Outcome outcome = lockstep(command(2), folder_.path());
  ASSERT_EQ(outcome.code, 0) << outcome.err;
  EXPECT_EQ(outcome.out.find("tiny: 853K parameters, TP2 x PP2, 1f1b"), 0u) << outcome.out;
  const std::regex line(
      R"(step [12]/2  loss [0-9.]+  grad_norm [0-9.]+  lr \S+  mem \S+iB  tps [0-9,]+  tflops [0-9.]+  mfu [0-9.]+%  eta 0:\d\d:\d\d  exposed \d+%( \(((tp|pp) \d+ ?)+\))?\n)");
  EXPECT_EQ(std::distance(std::sregex_iterator(outcome.out.begin(), outcome.out.end(), line),
                          std::sregex_iterator()),
            2)
      << outcome.out;
  EXPECT_EQ(outcome.out.find('\x1b'), std::string::npos) << "no terminal, no escapes";
  for (const char* text : {"mfu: share of the measured ", " GFLOP/s, bf16, ", "held-out loss", "weights_hash",
                           "run.db", "next:"}) {
    EXPECT_NE(outcome.out.find(text), std::string::npos) << text;
  }
}

TEST_F(Train, AKilledWorkerEndsTheRunAndIsNamed) {
  for (const int victim : {0, 3}) {
    const auto program = start_endless();
    kill(by_rank_.at(victim), SIGKILL);
    const auto start = std::chrono::steady_clock::now();
    const Outcome outcome = program->wait();
    EXPECT_LT(std::chrono::steady_clock::now() - start, std::chrono::seconds(5));
    EXPECT_EQ(outcome.code, 1);
    EXPECT_NE(outcome.err.find("rank " + std::to_string(victim) + " was killed by signal 9 (SIGKILL)"),
              std::string::npos)
        << outcome.err;
    EXPECT_TRUE(end_within(all_workers_, 0.1));
    EXPECT_EQ(state(), "failed");
    EXPECT_GE(observe::RunStore::open(run_dir() / "run.db").steps().size(), 2u) << "what was done is kept";
    std::filesystem::remove_all(run_dir());
    by_rank_.clear();
  }
}

TEST_F(Train, AKilledLauncherLeavesNoWorker) {
  auto program = start_endless();
  kill(program->pid(), SIGKILL);
  EXPECT_EQ(program->wait().signal, SIGKILL);
  EXPECT_TRUE(end_within(all_workers_, 2));
  EXPECT_EQ(runs()[0]["state"], "killed") << "the store could not be told, and `runs` sees it all the same";
  const Json exported = Json::parse(lockstep({"runs", "export", run_dir().string(), "--json"}).out);
  ASSERT_GE(exported.size(), 2u) << "what was done is there";
  for (size_t i = 0; i < exported.size(); ++i) EXPECT_EQ(exported[i]["step"], i + 1);
}

TEST_F(Train, ALauncherKilledWhileWorkersStartLeavesNone) {
  Program program(command(1'000'000), folder_.path());
  ASSERT_TRUE(within(30, [&] { return children_of(program.pid()).size() == workers; }));
  all_workers_ = children_of(program.pid());
  program.signal(SIGKILL);
  program.wait();
  EXPECT_TRUE(end_within(all_workers_, 2));
}

TEST_F(Train, AnInterruptEndsItCleanly) {
  for (const int number : {SIGINT, SIGTERM}) {
    const auto program = start_endless();
    EXPECT_EQ(runs()[0]["state"], "running");
    program->signal(number);
    const Outcome outcome = program->wait();
    EXPECT_EQ(outcome.code, 128 + number) << outcome.err;
    EXPECT_NE(outcome.err.find("interrupted by SIG"), std::string::npos) << outcome.err;
    EXPECT_TRUE(end_within(all_workers_, 0.1));
    EXPECT_EQ(state(), "interrupted");
    std::filesystem::remove_all(run_dir());
    by_rank_.clear();
  }
}

// With data parallel alone everybody waits for the stopped one itself. (In a pipeline the first wait to end
// may be for a rank that waits in its turn.)
TEST_F(Train, AStoppedWorkerIsNamedByTheTimeout) {
  const auto program = start_endless({"--set", "train.timeout_seconds=3", "--set", "parallel.tp=1", "--set",
                                      "parallel.pp=1", "--set", "parallel.dp=4"});
  kill(by_rank_.at(2), SIGSTOP);
  const auto start = std::chrono::steady_clock::now();
  const Outcome outcome = program->wait();
  EXPECT_LT(std::chrono::steady_clock::now() - start, std::chrono::seconds(15));
  EXPECT_EQ(outcome.code, 1);
  EXPECT_TRUE(std::regex_search(outcome.err, std::regex("(rank|ranks) 2\\b"))) << outcome.err;
  EXPECT_NE(outcome.err.find("did not come"), std::string::npos) << outcome.err;
  EXPECT_TRUE(end_within(all_workers_, 0.1)) << "the stopped one too";
}

// A paused pager: the pipe is full and nobody reads. The launcher still hears signals and deaths.
TEST_F(Train, AReaderThatPausesDoesNotHoldTheLauncherUp) {
  for (const bool interrupt : {true, false}) {
    int ends[2];
    ASSERT_EQ(pipe2(ends, O_CLOEXEC), 0);
    ASSERT_GE(fcntl(ends[1], F_SETPIPE_SZ, 4096), 0);
    Program program(command(1'000'000), folder_.path(), ends[1]);
    close(ends[1]);
    const auto steps_stored = [&] {
      try {
        return observe::RunStore::open(run_dir() / "run.db").steps().size();
      } catch (const std::exception&) {
        return size_t{0};  // not there yet
      }
    };
    // Twice as many lines as the pipe holds: the run goes on without its reader.
    ASSERT_TRUE(within(60, [&] { return steps_stored() > 80; }));
    all_workers_ = children_of(program.pid());
    ASSERT_EQ(all_workers_.size(), static_cast<size_t>(workers));
    const auto start = std::chrono::steady_clock::now();
    if (interrupt) {
      program.signal(SIGINT);
    } else {
      kill(*all_workers_.begin(), SIGKILL);
    }
    const Outcome outcome = program.wait();
    EXPECT_LT(std::chrono::steady_clock::now() - start, std::chrono::seconds(10));
    EXPECT_EQ(outcome.code, interrupt ? 128 + SIGINT : 1) << outcome.err;
    EXPECT_TRUE(end_within(all_workers_, 0.1));
    close(ends[0]);
    std::filesystem::remove_all(run_dir());
  }
}

TEST_F(Train, AReaderThatLeavesEndsTheRun) {
  int ends[2];
  ASSERT_EQ(pipe2(ends, O_CLOEXEC), 0);
  Program program(command(1'000'000), folder_.path(), ends[1]);
  close(ends[1]);
  char part[256];
  ASSERT_GT(read(ends[0], part, sizeof part), 0);  // the opening sentence
  ASSERT_TRUE(within(30, [&] { return children_of(program.pid()).size() == workers; }));
  all_workers_ = children_of(program.pid());
  close(ends[0]);
  const Outcome outcome = program.wait();
  EXPECT_EQ(outcome.code, 1);
  EXPECT_NE(outcome.err.find("cannot be written"), std::string::npos) << outcome.err;
  EXPECT_TRUE(end_within(all_workers_, 0.1));
  EXPECT_EQ(state(), "failed");
}

}  // namespace
}  // namespace lockstep::test
