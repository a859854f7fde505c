// Runs that end with nothing to show, and a folder that holds a run which cannot be read.
#include "cli_train/whole_run.hpp"

namespace lockstep::test {
namespace {

class Endings : public WholeRun {};

// Weights so large that the loss overflows from the first step on.
TEST_F(Endings, ARunWhoseStepsWereAllSkippedHasFailed) {
  const Outcome outcome =
      lockstep(command(3, {"--set", "train.nonfinite=skip", "--set", "model.init_std=1e30"}), folder_.path());
  EXPECT_EQ(outcome.code, 1) << outcome.out;
  EXPECT_NE(outcome.err.find("all 3 steps were skipped, so no weight has changed"), std::string::npos)
      << outcome.err;
  EXPECT_EQ(state(), "failed");
}

TEST_F(Endings, TheFirstStepsTroubleIsTheInitialWeights) {
  const Outcome outcome = lockstep(command(3, {"--set", "model.init_std=1e30"}), folder_.path());
  EXPECT_EQ(outcome.code, 1);
  EXPECT_NE(outcome.err.find("try a smaller model.init_std"), std::string::npos) << outcome.err;
}

TEST_F(Endings, ARemovedRunFolderIsNoSuccess) {
  Program program(command(60), folder_.path());
  ASSERT_TRUE(within(60, [&] { return program.out().find("step 2/") != std::string::npos; }))
      << program.err();
  std::filesystem::remove_all(run_dir());
  const Outcome outcome = program.wait();
  EXPECT_EQ(outcome.code, 1);
  EXPECT_NE(outcome.err.find("is gone, removed while the run went on"), std::string::npos) << outcome.err;
}

TEST_F(Endings, AnUnreadableRunHidesNoOther) {
  ASSERT_EQ(lockstep(command(2), folder_.path()).code, 0);
  const auto damaged = folder_.path() / "damaged";
  std::filesystem::create_directories(damaged);
  std::ofstream(damaged / "run.db") << "no database at all";
  std::map<std::string, std::string> states;
  for (const Json& row : runs()) {
    states[std::filesystem::path(row.at("run_directory").get<std::string>()).filename().string()] =
        row.at("state").get<std::string>();
  }
  EXPECT_EQ(states, (std::map<std::string, std::string>{{"run", "finished"}, {"damaged", "unreadable"}}));
}

}  // namespace
}  // namespace lockstep::test
