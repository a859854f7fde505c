// Wrong run files and flags: a clear answer, exit code 2, nothing written anywhere.
#include <gtest/gtest.h>

#include <ostream>

#include "cli/program.hpp"

namespace lockstep::test {
namespace {

// A command that must be refused. The run file is the tests' own, one text replaced, as FOLDER/run.toml.
struct Case {
  std::string name;
  std::string from, to;                // in the run file
  std::vector<std::string> arguments;  // after the run file
  std::vector<std::string> answers;    // all of them in the message
};

std::ostream& operator<<(std::ostream& out, const Case& test) { return out << test.name; }

const std::vector<Case>& cases() {
  static const std::vector<Case> all = {
      {"WrongType",
       "hidden = 128",
       "hidden = \"wide\"",
       {},
       {"run.toml:LINE:", "model.hidden = \"wide\"", "integer"}},
      {"UnknownKey",
       "micro_batch = 1",
       "micro_bach = 1",
       {},
       {"run.toml:LINE:", "parallel.micro_bach", "did you mean parallel.micro_batch"}},
      {"UnknownTable", "[parallel]", "[paralel]", {}, {"paralel", "parallel"}},
      {"TpDoesNotDivideHeads",
       "tp = 2",
       "tp = 3",
       {},
       {"run.toml:LINE:", "parallel.tp = 3", "must divide model.heads = 8", "works: 4"}},
      {"WorldSize", "gpus = 8", "gpus = 16", {}, {"run.toml:LINE:", "cluster.gpus = 16", "= 8", "works: 8"}},
      {"SequenceByTp",
       "sequence = 128",
       "sequence = 127",
       {},
       {"run.toml:LINE:", "train.sequence = 127", "parallel.tp = 2", "works: 128"}},
      {"LayersByStages", "layers = 4", "layers = 5", {}, {"run.toml:LINE:", "model.layers = 5", "pp"}},
      {"BadSchedule",
       "schedule = \"1f1b\"",
       "schedule = \"1f2b\"",
       {},
       {"run.toml:LINE:", "parallel.schedule = \"1f2b\"", "1f1b"}},
      {"NotBuiltYet",
       "layers = 4",
       "hf = \"config.json\"\nlayers = 4",
       {},
       {"run.toml:LINE:", "model.hf = \"config.json\"", "not built yet"}},
      {"NotTrained",
       "layers = 4",
       "architecture = \"gpt\"\nlayers = 4",
       {},
       {"run.toml:LINE:", "model.architecture = \"gpt\"", "training computes llama models"}},
      {"Syntax", "steps = 600", "steps = = 600", {}, {"run.toml:LINE:"}},
      {"Override", "", "", {"--set", "train.steps=-3"}, {"--set train.steps=-3", "train.steps = -3"}},
      {"OverrideType", "", "", {"--set", "train.steps=many"}, {"--set train.steps=many", "integer"}},
      {"OverrideKey", "", "", {"--set", "train.stesp=3"}, {"train.stesp", "did you mean train.steps"}},
      {"OverrideForm", "", "", {"--set", "nonsense"}, {"--set nonsense", "table.key=value"}},
      {"Flag", "", "", {"--run-dri", "x"}, {"--run-dri", "--run-dir"}},
      {"RunDirInUse", "", "", {"--run-dir", "."}, {"--run-dir .", "not an empty folder"}},
      {"HeldOut",
       "2016_barack",
       "2061_barack",
       {},
       {"\"2061_barack_obama_d\" is not a document", "nearest is"}},
      {"TrainingRule",
       "",
       "",
       {"--set", "data.text=/nowhere"},
       {"data.text = \"/nowhere\"", "no such folder or file"}},
  };
  return all;
}

class BadInput : public testing::TestWithParam<Case> {};

TEST_P(BadInput, IsAnsweredAndLeavesNothing) {
  const Case& test = GetParam();
  const bool needs_worker =
      test.name == "RunDirInUse" || test.name == "HeldOut";  // the trainer is looked for first
  if (needs_worker && !has_worker()) GTEST_SKIP() << "this build has no trainer";
  TemporaryFolder folder;
  const std::string line = std::to_string(write_run_file(folder.path() / "run.toml", test.from, test.to));
  const auto before = listing(folder.path());
  const auto shared_before = named_shared_memory();
  std::vector<std::string> words = {"train", "run.toml"};
  words.insert(words.end(), test.arguments.begin(), test.arguments.end());
  const Outcome outcome = lockstep(words, folder.path());
  EXPECT_EQ(outcome.code, 2) << outcome.err;
  EXPECT_TRUE(outcome.out.empty()) << outcome.out;
  for (std::string answer : test.answers) {
    if (const size_t at = answer.find("LINE"); at != std::string::npos) answer.replace(at, 4, line);
    EXPECT_NE(outcome.err.find(answer), std::string::npos)
        << "wanted: " << answer << "\ngot: " << outcome.err;
  }
  EXPECT_EQ(listing(folder.path()), before) << "something was written";
  EXPECT_EQ(named_shared_memory(), shared_before);
}

INSTANTIATE_TEST_SUITE_P(Cases, BadInput, testing::ValuesIn(cases()),
                         [](const auto& test) { return test.param.name; });

TEST(BadInputFiles, AMissingFileIsNamed) {
  TemporaryFolder folder;
  for (const char* command : {"train", "simulate", "plan"}) {
    const Outcome outcome = lockstep({command, "absent.toml"}, folder.path());
    EXPECT_EQ(outcome.code, 2);
    EXPECT_NE(outcome.err.find("absent.toml: no such run file"), std::string::npos) << outcome.err;
  }
  EXPECT_TRUE(listing(folder.path()).empty());
}

TEST(BadInputFiles, AllProblemsComeAtOnce) {
  TemporaryFolder folder;
  write_run_file(folder.path() / "run.toml", "tp = 2", "tp = 3");
  const Outcome outcome =
      lockstep({"train", "run.toml", "--set", "train.steps=0", "--set", "train.lrr=1"}, folder.path());
  EXPECT_EQ(outcome.code, 2);
  for (const char* answer : {"train.steps = 0", "train.lrr", "model.heads = 8", "cluster.gpus = 8"}) {
    EXPECT_NE(outcome.err.find(answer), std::string::npos) << answer << "\n" << outcome.err;
  }
}

TEST(BadInputFiles, WithoutATrainerTrainSaysHowToGetIt) {
  if (has_worker()) GTEST_SKIP() << "this build has one";
  TemporaryFolder folder;
  const Outcome outcome = lockstep({"train", tiny().string()}, folder.path());
  EXPECT_EQ(outcome.code, 2);
  EXPECT_NE(outcome.err.find("-DLOCKSTEP_TRAIN=ON"), std::string::npos) << outcome.err;
  EXPECT_NE(outcome.err.find("libtorch-dev"), std::string::npos) << outcome.err;
  EXPECT_TRUE(listing(folder.path()).empty());
}

}  // namespace
}  // namespace lockstep::test
