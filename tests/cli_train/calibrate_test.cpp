// `lockstep calibrate` on this machine, and what its figures say of a run that is then taken.
#include <algorithm>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <fstream>

#include "cli/train_run.hpp"
#include "cli_train/whole_run.hpp"
#include "config/run_file.hpp"
#include "observe/run_folder.hpp"

namespace lockstep::test {
namespace {

class Calibrate : public testing::Test {
 protected:
  Calibrate() {
    std::filesystem::create_directory(scratch_);
    setenv("TMPDIR", scratch_.c_str(), 1);  // where it would leave something
    write_run_file(folder_.path() / "run.toml", "tp = 2\ncp = 1\npp = 2\ndp = 2",
                   "tp = 1\ncp = 1\npp = 1\ndp = 1");
  }
  ~Calibrate() override {
    EXPECT_TRUE(std::filesystem::is_empty(scratch_)) << "a temporary file is left";
    unsetenv("TMPDIR");
  }
  Outcome command(std::vector<std::string> words) const {
    if (words[0] != "calibrate") words.insert(words.end(), {"--set", "cluster.gpus=1"});
    return lockstep(words, folder_.path());
  }

  // Calibrates into here.toml; the document that it prints.
  Json measure() const {
    const Outcome outcome = command({"calibrate", "--quick", "--output", "here.toml", "--json"});
    EXPECT_EQ(outcome.code, 0) << outcome.err;
    const std::string text = read_file(folder_.path() / "here.toml");
    EXPECT_TRUE(text.starts_with("# This machine, as `lockstep calibrate` measured it.\n"));
    for (const char* word : {"# when     2", "# machine  ", "# build    lockstep "}) {
      EXPECT_NE(text.find(word), std::string::npos) << word;
    }
    return Json::parse(outcome.out);
  }

  // Trains 30 steps with here.toml, and sets what is predicted with it beside: by the run itself and after
  // it.
  Json train(const std::string& run) const {
    const Outcome trained = command({"train", "run.toml", "--run-dir", run, "--set", "cluster.file=here.toml",
                                     "--set", "train.steps=30", "--set", "train.eval_sequences=8"});
    EXPECT_EQ(trained.code, 0) << trained.err;
    EXPECT_NE(trained.out.find("here.toml, "), std::string::npos) << trained.out;
    const auto prediction = observe::RunStore::open(folder_.path() / run / "run.db").prediction();
    EXPECT_TRUE(prediction && prediction->cluster.ends_with("/here.toml"));
    const Outcome against = command({"simulate", "run.toml", "--cluster", "here.toml", "--against", run,
                                     "--set", "simulate.jitter=false", "--json"});
    EXPECT_EQ(against.code, 0) << against.err;
    const Json table = Json::parse(against.out)["against"];
    EXPECT_NEAR(table["predicted_seconds"].get<double>(), prediction->seconds, 1e-9);
    return table;
  }

  TemporaryFolder folder_;
  std::filesystem::path scratch_ = folder_.path() / "scratch";
};

// A step that takes more or less than was predicted by more than this factor is told from noise. Tight
// figures are bench/against_reality.py's.
constexpr double factor = 2;
bool near(double predicted, double measured) {
  return predicted < factor * measured && measured < factor * predicted;
}

// A kernel, a unit or a core that is counted twice or not at all is off every time; other programs that start
// between the calibration and the run are not.
TEST_F(Calibrate, ItsFiguresPredictARun) {
  std::string tries;
  for (const std::string run : {"first", "second", "third"}) {
    const Json lone = measure()["runs"][0];
    EXPECT_EQ(lone["run"], "hidden 128, 512 tokens, 1 worker");
    const Json table = train(run);
    tries += lone.dump() + "\n" + table.dump() + "\n";
    if (near(lone["predicted_seconds"], lone["measured_seconds"]) &&
        near(table["predicted_seconds"], table["measured_seconds"])) {
      return;
    }
  }
  ADD_FAILURE() << tries;
}

// While workers train, and while processes time collectives.
TEST_F(Calibrate, AnInterruptionLeavesNothing) {
  for (const char* moment : {"kernels: ", "all_reduce between "}) {
    Program program({"calibrate", "--quick", "--output", "here.toml"}, folder_.path());
    EXPECT_TRUE(within(60, [&] { return program.err().find(moment) != std::string::npos; })) << program.err();
    EXPECT_TRUE(within(10, [&] { return !children_of(program.pid()).empty(); }));
    const std::set<pid_t> workers = children_of(program.pid());
    program.signal(SIGINT);
    const Outcome outcome = program.wait();
    EXPECT_EQ(outcome.code, 130) << outcome.err;
    EXPECT_NE(outcome.err.find("nothing was written"), std::string::npos) << outcome.err;
    EXPECT_TRUE(end_within(workers, 0.5));
    EXPECT_FALSE(std::filesystem::exists(folder_.path() / "here.toml"));
    EXPECT_TRUE(std::filesystem::is_empty(scratch_)) << moment;
  }
}

// The rules let no run through that cannot be simulated, so what the launcher has is spoilt behind their
// back.
TEST_F(Calibrate, ARunGoesOnWithoutItsPredictionAndSaysSo) {
  config::RunFile run = config::load_run_file(folder_.path() / "run.toml",
                                              {"cluster.gpus=1", "train.steps=4", "train.eval_sequences=8"});
  const auto folder = observe::RunFolder::create_at(folder_.path() / "run", config::to_toml(run));
  run.simulate.op_jitter = 2;
  const std::filesystem::path lines = folder_.path() / "lines";
  std::FILE* out = std::fopen(lines.c_str(), "w");
  cli::TrainRun train_run(run, folder, out);
  EXPECT_EQ(train_run.go(std::filesystem::path(LOCKSTEP_BINARY_DIR) / "lockstep-worker").kind,
            resilience::LaunchEnd::Kind::finished);
  EXPECT_EQ(train_run.summary().find("predicted"), std::string::npos);
  std::fclose(out);
  EXPECT_NE(read_file(lines).find("this run's step is not predicted: jitter must be"), std::string::npos);
  const observe::RunStore store = observe::RunStore::open(folder.database());
  EXPECT_FALSE(store.prediction());
  EXPECT_EQ(store.steps().size(), 4u);
  const auto events = store.events();
  EXPECT_TRUE(std::any_of(events.begin(), events.end(),
                          [](const auto& event) { return event.kind == "prediction failed"; }));
}

}  // namespace
}  // namespace lockstep::test
