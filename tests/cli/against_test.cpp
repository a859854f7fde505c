// A simulated step beside a real one's: simulate --against, and the predictions that `lockstep runs` shows.
// The "real" runs here are folders whose every span and second was planted, so what must come out is known.
#include "cli/against.hpp"

#include <gtest/gtest.h>

#include <cmath>
#include <filesystem>
#include <fstream>
#include <limits>
#include <map>

#include "base/json.hpp"
#include "cli/modelled_run.hpp"
#include "cli/prediction.hpp"
#include "cli/program.hpp"
#include "observe/run_folder.hpp"
#include "observe/run_store.hpp"
#include "observe/span.hpp"

namespace lockstep::test {
namespace {

constexpr int64_t gemm_ns = 1000, attention_ns = 20'000, memory_ns = 300, optimizer_ns = 7000;
constexpr double traced_seconds = 0.5;

int64_t planted_ns(parallel::ActionKind action, model::OpKind kind) {
  if (action == parallel::ActionKind::gradient_norm || action == parallel::ActionKind::optimizer_step) {
    return optimizer_ns;
  }
  if (kind == model::OpKind::gemm) return gemm_ns;
  return kind == model::OpKind::attention ? attention_ns : memory_ns;
}

class Against : public testing::Test {
 protected:
  Against() { write_run_file(file_, "gpus = 8\n[parallel]\ntp = 2", "gpus = 4\n[parallel]\ntp = 1"); }

  config::RunFile run(const std::vector<std::string>& overrides = {}) const {
    return config::load_run_file(file_, overrides);
  }

  // Steps 1 to 9, of which 5 and 6 are traced: every op of the program as a span of its kind's length.
  // Returns what every part must come out as, by hand from the program's own list.
  std::map<std::string, double> plant(const config::RunFile& real) const {
    const observe::RunFolder folder = observe::RunFolder::create_at(folder_.path() / "run", to_toml(real));
    observe::RunStore store = observe::RunStore::create(folder.database());
    for (int64_t step = 1; step <= 9; ++step) {
      observe::StepRecord record;
      record.step = step;
      record.seconds = step == 5 || step == 6 ? traced_seconds : step;
      record.skipped = step == 9;
      record.waits = observe::StepWaits{{.tp = 0, .cp = 0, .pp = 0.125, .dp = 0.0625}, {}};
      store.append_step(record);
    }
    store.set_prediction({"planted", 0.25, {}});
    const parallel::Layout layout(real);
    std::map<std::string, double> parts = {{"pp", 0.125}, {"dp", 0.0625}};
    const double ranks = static_cast<double>(layout.mesh().size());
    for (int rank = 0; rank < layout.mesh().size(); ++rank) {
      observe::SpanRecorder recorder(rank, 10'000);
      for (const int step : {4, 5, 6}) plant_step(layout, rank, step, recorder);
      recorder.save(folder.trace() / ("rank-" + std::to_string(rank) + ".spans"));
      for (const auto& [name, seconds] : kernel_seconds(layout, rank)) parts[name] += seconds / ranks;
    }
    double sum = 0;
    for (const auto& [name, seconds] : parts) sum += seconds;
    parts["other"] = traced_seconds - sum;
    return parts;
  }

  // Writes a step again, as no run does.
  void spoil(int64_t number, double seconds, double waited) const {
    const std::filesystem::path file = folder_.path() / "run/run.db";
    std::vector<observe::StepRecord> steps = observe::RunStore::open(file).steps();
    std::filesystem::remove(file);
    observe::RunStore store = observe::RunStore::create(file);
    for (observe::StepRecord& step : steps) {
      if (step.step == number) {
        step.seconds = seconds;
        step.waits->exposed.pp = waited;
      }
      store.append_step(step);
    }
  }

  Outcome simulate(std::vector<std::string> more) const {
    more.insert(more.begin(), {"simulate", file_.string(), "--against", (folder_.path() / "run").string()});
    return lockstep(more);
  }

  TemporaryFolder folder_;
  std::filesystem::path file_ = folder_.path() / "run.toml";
  std::vector<std::string> traced_ = {"train.trace_first_step=5", "train.trace_steps=2"};

 private:
  template <class Visit>
  static void each_kernel(const parallel::Layout& layout, int rank, Visit visit) {
    const int stage = layout.mesh().coordinates(rank).pp;
    const auto programs = parallel::build_step_programs(layout);
    for (const parallel::Action& action : programs[static_cast<size_t>(stage)].actions) {
      for (const model::Op& op : parallel::action_ops(layout, stage, action)) {
        if (op.stream == model::Stream::compute) visit(action.kind, op);
      }
    }
  }
  static void plant_step(const parallel::Layout& layout, int rank, int step,
                         observe::SpanRecorder& recorder) {
    each_kernel(layout, rank, [&](parallel::ActionKind action, const model::Op& op) {
      observe::Span span;
      span.end_ns = planted_ns(action, op.kind);
      span.step = step;
      span.name = recorder.name_id(op.name);
      recorder.record(span);
    });
  }
  static std::map<std::string, double> kernel_seconds(const parallel::Layout& layout, int rank) {
    std::map<std::string, double> parts;
    each_kernel(layout, rank, [&](parallel::ActionKind action, const model::Op& op) {
      const int64_t ns = planted_ns(action, op.kind);
      const char* part = ns == optimizer_ns   ? "optimizer"
                         : ns == gemm_ns      ? "gemm"
                         : ns == attention_ns ? "attention"
                                              : "memory";
      parts[part] += static_cast<double>(ns) * 1e-9;
    });
    return parts;
  }
};

TEST_F(Against, EveryPartOfThePlantedRunComesOut) {
  const std::map<std::string, double> expected = plant(run(traced_));
  const Outcome outcome = simulate({"--json", "--set", "simulate.jitter=false"});
  ASSERT_EQ(outcome.code, 0) << outcome.err;
  const Json document = Json::parse(outcome.out), against = document["against"];
  double predicted = 0, measured = 0;
  std::map<std::string, double> parts;
  for (const Json& part : against["parts"]) {
    parts[part["part"].get<std::string>()] = part["measured_seconds"];
    predicted += part["predicted_seconds"].get<double>();
    measured += part["measured_seconds"].get<double>();
  }
  for (const auto& [name, seconds] : expected) EXPECT_NEAR(parts.at(name), seconds, 1e-9) << name;
  // Both columns add up; the middle of steps 4 to 8 (4, 0.5, 0.5, 7, 8 s), for the ninth was skipped.
  EXPECT_NEAR(predicted, document["step"]["seconds"].get<double>(), 1e-12);
  EXPECT_NEAR(measured, traced_seconds, 1e-12);
  EXPECT_EQ(against["measured_seconds"], 4.0);
  EXPECT_EQ(against["measured_steps"], 5);
  EXPECT_EQ(against["traced_steps"], 2);
  EXPECT_NEAR(against["error"].get<double>(), document["step"]["seconds"].get<double>() / 4 - 1, 1e-12);
  const Outcome text = simulate({});
  EXPECT_NE(text.out.find("attention  fused attention"), std::string::npos) << text.out;
  EXPECT_NE(text.out.find(" % less than measured"), std::string::npos) << text.out;
}

// By the same prices that the simulator takes, each kind apart.
TEST_F(Against, ThePredictedKernelsAreTheProgramsOwn) {
  plant(run(traced_));
  const config::RunFile here = run();
  const parallel::Layout layout(here);
  const auto programs = cli::checked_programs(layout);
  sim::StepOptions options;
  options.jitter = false;
  const sim::SharedStep shared = sim::simulate_shared_step(layout, programs, options);
  const cli::Comparison c =
      cli::compare(here, programs, shared, cli::read_measured_run(here, programs, folder_.path() / "run"));
  double kernels = 0;
  for (const cli::ComparedPart& part : c.parts) {
    if (part.name == "optimizer") {
      EXPECT_NEAR(part.predicted, shared.step.split.optimizer, 1e-9);
    } else if (part.name == "gemm" || part.name == "attention" || part.name == "memory") {
      EXPECT_GT(part.predicted, 0) << part.name;
      kernels += part.predicted;
    }
  }
  EXPECT_NEAR(kernels, shared.step.split.compute, 1e-9);
}

TEST_F(Against, AnotherLayoutIsRefusedAndNamed) {
  plant(run(traced_));
  const Outcome outcome =
      simulate({"--set", "parallel.tp=2", "--set", "parallel.dp=1", "--set", "train.sequence=64"});
  EXPECT_EQ(outcome.code, 2);
  for (const char* text : {"parallel.tp: 2 here, 1 in the run", "parallel.dp: 1 here, 2 in the run",
                           "train.sequence: 64 here, 128 in the run"}) {
    EXPECT_NE(outcome.err.find(text), std::string::npos) << outcome.err;
  }
  EXPECT_EQ(outcome.err.find("parallel.pp"), std::string::npos) << outcome.err;
  // What does not shape a step may differ.
  EXPECT_EQ(simulate({"--set", "train.lr=1e-5", "--set", "train.steps=7"}).code, 0);
}

TEST_F(Against, ARunWithoutATraceOrWithoutAFolderIsRefused) {
  plant(run({"train.trace_steps=0"}));
  const Outcome outcome = simulate({});
  EXPECT_EQ(outcome.code, 2);
  EXPECT_NE(outcome.err.find("train.trace_steps of at least 1"), std::string::npos) << outcome.err;
  EXPECT_EQ(lockstep({"simulate", file_.string(), "--against", "/nowhere"}).code, 2);
}

TEST_F(Against, NothingIsWrittenInOrBesideTheRun) {
  plant(run(traced_));
  const auto before = listing(folder_.path());
  const std::string inside = (folder_.path() / "run").string();
  std::filesystem::create_directory_symlink(inside, folder_.path() / "link");
  for (const std::string& trace :
       {inside + "/run.db", inside + "/trace/new.json", (folder_.path() / "link" / "t.json").string(),
        inside + "/../run/t.json"}) {
    const Outcome outcome = simulate({"--trace", trace});
    EXPECT_EQ(outcome.code, 2);
    EXPECT_NE(outcome.err.find("lies in the run folder"), std::string::npos) << outcome.err;
  }
  std::filesystem::remove(folder_.path() / "link");
  EXPECT_EQ(listing(folder_.path()), before);
  EXPECT_EQ(simulate({}).code, 0);
  EXPECT_EQ(listing(folder_.path()), before) << "reading leaves no file beside the store";
}

// Whatever is wrong with the run is told before a trace is written.
TEST_F(Against, AWrongRunLeavesTheTraceAsItWas) {
  const std::string trace = (folder_.path() / "t.json").string();
  EXPECT_EQ(simulate({"--trace", trace}).code, 2) << "no run there";
  plant(run(traced_));
  EXPECT_EQ(simulate({"--trace", trace, "--set", "train.sequence=64"}).code, 2);
  std::filesystem::resize_file(folder_.path() / "run/trace/rank-2.spans", 100);
  const Outcome cut = simulate({"--trace", trace});
  EXPECT_EQ(cut.code, 1);
  EXPECT_NE(cut.err.find("rank-2.spans: not a whole span file"), std::string::npos) << cut.err;
  EXPECT_NE(cut.err.find("needs the spans of every rank"), std::string::npos) << cut.err;
  EXPECT_FALSE(std::filesystem::exists(trace));
}

TEST_F(Against, SpansOfAnotherRankAreRefused) {
  plant(run(traced_));
  const auto spans = folder_.path() / "run/trace";
  std::filesystem::copy_file(spans / "rank-1.spans", spans / "rank-3.spans",
                             std::filesystem::copy_options::overwrite_existing);
  const Outcome outcome = simulate({});
  EXPECT_EQ(outcome.code, 1);
  EXPECT_NE(outcome.err.find("rank-3.spans: holds the spans of rank 1, not of rank 3"), std::string::npos)
      << outcome.err;
  observe::SpanRecorder(3, 1).save(spans / "rank-3.spans");
  EXPECT_NE(simulate({}).err.find("rank-3.spans: holds no span of step 5"), std::string::npos);
}

TEST_F(Against, TimesThatNoStepTakesAreRefused) {
  constexpr double nan = std::numeric_limits<double>::quiet_NaN();
  constexpr double inf = std::numeric_limits<double>::infinity();
  for (const double seconds : {0.0, -1.0, nan, inf}) {
    std::filesystem::remove_all(folder_.path() / "run");
    plant(run(traced_));
    spoil(7, seconds, 0.125);
    const Outcome outcome = simulate({});
    EXPECT_EQ(outcome.code, 1) << seconds << outcome.out;
    EXPECT_NE(outcome.err.find("run.db: step 7 took "), std::string::npos) << outcome.err;
    EXPECT_TRUE(outcome.out.empty());
  }
  spoil(7, 1, 0.125);
  EXPECT_EQ(simulate({}).code, 0);
  spoil(6, traced_seconds, inf);
  EXPECT_NE(simulate({}).err.find("run.db: step 6 waited inf seconds"), std::string::npos);
  spoil(6, traced_seconds, 0.125);
  spoil(3, -1, 0.125);
  EXPECT_EQ(simulate({}).code, 0) << "a step that is not looked at";
}

TEST_F(Against, RunsShowsThePredictionBesideTheMeasurement) {
  plant(run(traced_));
  const std::string parent = folder_.path().string();
  const Json row = Json::parse(lockstep({"runs", "--dir", parent, "--json"}).out)[0];
  EXPECT_EQ(row["step_seconds"], 4.0);
  EXPECT_EQ(row["predicted_step_seconds"], 0.25);
  EXPECT_EQ(row["predicted_with"], "planted");
  const std::string table = lockstep({"runs", "--dir", parent}).out;
  EXPECT_NE(table.find("4.00 s"), std::string::npos) << table;
  EXPECT_NE(table.find("250 ms"), std::string::npos) << table;
}

TEST_F(Against, AClusterFileIsNamedAndTaken) {
  plant(run(traced_));
  const std::string cluster = (folder_.path() / "slow.toml").string();
  std::ofstream(cluster) << "[cluster]\npeak_flops_bf16 = 1e9\nlaunch_seconds = 1.0\n";
  const Json slow = Json::parse(simulate({"--json", "--cluster", cluster}).out);
  EXPECT_EQ(slow["against"]["cluster"], cluster);
  EXPECT_GT(slow["step"]["seconds"].get<double>(), 100);
  const Json planned = Json::parse(lockstep({"plan", file_.string(), "--json", "--cluster", cluster}).out);
  EXPECT_GT(planned["step"]["seconds"].get<double>(), 100);
  EXPECT_EQ(cli::cluster_name(run()), "preset local");
  EXPECT_EQ(cli::cluster_name(run({"cluster.launch_seconds=2e-6"})).substr(0, 5), "--set");
  EXPECT_EQ(lockstep({"plan", file_.string(), "--cluster", "/nowhere.toml"}).code, 2);
}

TEST(Prediction, SteadyStepsComeAfterWarmthAndRamp) {
  config::TrainConfig train;
  train.global_batch = 16;
  EXPECT_EQ(cli::first_steady_step(train), 4);
  train.batch_ramp = {"4:2", "8:10"};
  EXPECT_EQ(cli::first_steady_step(train), 11);
  EXPECT_TRUE(std::isnan(cli::median_step_seconds({}, 4)));
  EXPECT_EQ(cli::off_by(0.9, 1), "10.0 % less than measured");
  EXPECT_EQ(cli::off_by(1.25, 1), "25.0 % more than measured");
}

}  // namespace
}  // namespace lockstep::test
