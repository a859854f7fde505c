// docs/accuracy.md against the program: bench/accuracy.py makes its tables again.
#include <gtest/gtest.h>
#include <sys/wait.h>

#include <cstdio>
#include <filesystem>
#include <fstream>
#include <sstream>

#include "cli/program.hpp"

namespace lockstep::test {
namespace {

namespace fs = std::filesystem;

const fs::path root = LOCKSTEP_SOURCE_DIR;
const std::string own_rows = (root / "data/published/measurements.csv").string();
const std::string all_rows = (root / "../shared/reference/ground_truth.csv").string();

struct Ran {
  int code = -1;
  std::string text;  // both streams
};
Ran ran(const std::string& command) {
  Ran out;
  FILE* pipe = popen((command + " 2>&1").c_str(), "r");
  if (pipe == nullptr) return out;
  char buffer[4096];
  for (size_t n; (n = fread(buffer, 1, sizeof buffer, pipe)) > 0;) out.text.append(buffer, n);
  const int status = pclose(pipe);
  out.code = WIFEXITED(status) ? WEXITSTATUS(status) : -1;
  return out;
}
Ran accuracy(const std::string& arguments) {
  return ran("LOCKSTEP_BUILD='" + lockstep_binary().parent_path().string() + "' python3 '" +
             (root / "bench/accuracy.py").string() + "' " + arguments);
}
std::string content(const fs::path& file) {
  std::ifstream in(file);
  std::stringstream text;
  text << in.rdbuf();
  return text.str();
}

TEST(AccuracyPage, ItsTableOfOwnRowsIsWhatTheProgramMakes) {
  const Ran run = accuracy("'" + own_rows + "' --check");
  EXPECT_EQ(run.code, 0) << run.text;
  EXPECT_EQ(run.text.find("checked: papers\nnot checked, for want of Megatron-LM's README, H100, "), 0u)
      << run.text;
}

TEST(AccuracyPage, AllItsTablesAreWhatTheProgramMakes) {
  if (!fs::exists(all_rows)) GTEST_SKIP() << "no ../shared/reference/ground_truth.csv here";
  const Ran run = accuracy("'" + all_rows + "' --check");
  EXPECT_EQ(run.code, 0) << run.text;
  EXPECT_EQ(run.text, "checked: papers, by source, memory, unfit, choices, worst, skipped\n");
}

TEST(AccuracyPage, AFigureThatIsNotTheProgramsIsFound) {
  const TemporaryFolder folder;
  const fs::path page = folder.path() / "accuracy.md";
  std::string text = content(root / "docs/accuracy.md");
  const size_t row = text.find("| Korthikanti 2022 Table 5 | GPT 22B", text.find("<!-- papers -->"));
  ASSERT_NE(row, std::string::npos);
  text.replace(text.find("1.42 s", row), 6, "1.43 s");
  std::ofstream(page) << text;
  const Ran run = accuracy("'" + own_rows + "' --check --out '" + page.string() + "'");
  EXPECT_EQ(run.code, 1) << run.text;
  EXPECT_NE(run.text.find("has other tables than the program makes: papers"), std::string::npos) << run.text;
}

TEST(AccuracyPage, IsLeftAloneWithoutAllSources) {
  const TemporaryFolder folder;
  const fs::path page = folder.path() / "accuracy.md";
  fs::copy_file(root / "docs/accuracy.md", page);
  const Ran run = accuracy("'" + own_rows + "' --out '" + page.string() + "'");
  EXPECT_EQ(run.code, 1) << run.text;
  EXPECT_NE(run.text.find("has no rows of Megatron-LM's README, H100, torchtitan, bf16, "), std::string::npos)
      << run.text;
  EXPECT_NE(run.text.find("| Korthikanti et al. 2022 | 9 |"), std::string::npos) << "printed instead";
  EXPECT_EQ(content(page), content(root / "docs/accuracy.md"));
}

}  // namespace
}  // namespace lockstep::test
