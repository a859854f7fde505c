// How far predictions are from what was published: the project's targets, source by source.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <filesystem>

#include "config/cluster_file.hpp"
#include "validate/validation.hpp"

namespace lockstep::validate {
namespace {

// Cases of the sources that begin so.
struct Group {
  size_t rows = 0;
  double mean = 0, most = 0, memory_mean = 0;
};
Group group(const Validation& v, const std::string& source) {
  Group out;
  size_t memories = 0;
  for (const Case& one : v.cases) {
    if (!one.row.source.starts_with(source)) continue;
    ++out.rows;
    out.mean += std::abs(one.error());
    out.most = std::max(out.most, std::abs(one.error()));
    if (const auto error = one.memory_error()) {
      ++memories;
      out.memory_mean += std::abs(*error);
    }
  }
  out.mean /= static_cast<double>(out.rows);
  out.memory_mean /= static_cast<double>(memories);
  return out;
}

void check_papers(const Validation& v) {
  const Group korthikanti = group(v, "Korthikanti");
  EXPECT_EQ(korthikanti.rows, 9u);
  EXPECT_LT(korthikanti.mean, 0.04);
  EXPECT_LT(korthikanti.most, 0.08);
  const Group llama = group(v, "Llama 3");
  EXPECT_EQ(llama.rows, 3u);
  EXPECT_LT(llama.most, 0.04);
  const Group sc21 = group(v, "Megatron-LM SC21");
  EXPECT_EQ(sc21.rows, 5u);
  EXPECT_LT(sc21.mean, 0.06);
  const Group megascale = group(v, "MegaScale");
  EXPECT_EQ(megascale.rows, 4u);
  EXPECT_LT(megascale.mean, 0.08);
}

TEST(Accuracy, OwnRowsReachTheTargets) {
  const Validation v = validate(own_measurements());
  check_papers(v);
  EXPECT_EQ(v.skipped.size(), 4u);
}

TEST(Accuracy, TheWholeFileReachesTheTargets) {
  const std::filesystem::path file =
      std::filesystem::path(LOCKSTEP_SOURCE_DIR) / "../shared/reference/ground_truth.csv";
  if (!std::filesystem::exists(file)) GTEST_SKIP() << "no ../shared/reference/ground_truth.csv here";
  const Validation v = validate(read_measurements(config::read_text(file, "file of measurements"), "shared"));
  EXPECT_EQ(v.cases.size() + v.skipped.size(), 358u);
  EXPECT_EQ(v.skipped.size(), 16u);
  check_papers(v);
  const auto check = [&](const char* source, size_t rows, double most) {
    const Group found = group(v, source);
    EXPECT_EQ(found.rows, rows) << source;
    EXPECT_LT(found.mean, most) << source;
  };
  check("Megatron-LM README", 6, 0.06);
  check("torchtitan", 4, 0.08);
  check("SimuMax", 16, 0.08);
  check("vTrain data", 55, 0.09);
  check("vTrain single", 240, 0.12);
  EXPECT_LT(group(v, "torchtitan").memory_mean, 0.08);
  EXPECT_LT(group(v, "SimuMax").memory_mean, 0.03);
}

// What the facts say of the MFU of these rows, and docs/accuracy.md of the long-context one.
TEST(Accuracy, TwoOfLlama3sRowsAreFittedAndTheLongContextOneIsNot) {
  int fitted = 0;
  for (const Case& one : validate(own_measurements()).cases) {
    if (!one.row.source.starts_with("Llama 3")) continue;
    fitted += one.fitted ? 1 : 0;
    EXPECT_EQ(one.held_out, one.row.sequence == 131072);
  }
  EXPECT_EQ(fitted, 2);
}

TEST(Accuracy, TheLongContextStepTakesAboutElevenSeconds) {
  const Validation v = validate(own_measurements());
  const auto found = std::find_if(v.cases.begin(), v.cases.end(),
                                  [](const Case& one) { return one.row.sequence == 131072; });
  ASSERT_NE(found, v.cases.end());
  EXPECT_NEAR(found->measured, 10.94, 0.01);
  EXPECT_NEAR(found->predicted, 10.94, 0.44);
}

}  // namespace
}  // namespace lockstep::validate
