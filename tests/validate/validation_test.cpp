// What becomes of a row: choices, assumptions, reasons to skip it, and the summary of errors.
#include "validate/validation.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "base/error.hpp"
#include "plan/report.hpp"

namespace lockstep::validate {
namespace {

const std::string columns =
    "source,model,layers,hidden,heads,kv_heads,ffn,vocab,seq,gpu,n_gpus,tp,pp,vpp,micro_batch,global_batch_"
    "seqs,"
    "recompute,step_time_s,memory_gib\n";
const std::string model = "mine,Llama 8B,32,4096,32,8,14336,128256,8192,";

Validation of(const std::string& rows) { return validate(read_measurements(columns + rows, "f")); }

bool assumes(const Case& one, const std::string& text) {
  return std::any_of(one.assumed.begin(), one.assumed.end(),
                     [&](const std::string& line) { return line.find(text) != std::string::npos; });
}

TEST(Validation, PredictsWhatPlanPredicts) {
  const Validation v = of(model + "H100 80G,16,4,2,1,1,32,none,9,60\n");
  ASSERT_EQ(v.cases.size(), 1u) << v.skipped.at(0).reason;
  const Case& one = v.cases[0];
  const plan::Plan plan = plan::plan_of(one.run);
  EXPECT_EQ(one.predicted, plan.step.seconds);
  EXPECT_EQ(*one.predicted_memory, static_cast<double>(plan.memory.fullest().total()));
  EXPECT_EQ(*one.measured_memory, 60 * 1073741824.0);
  EXPECT_EQ(one.error(), plan.step.seconds / 9 - 1);
  EXPECT_EQ(one.run.parallel.dp, 2);
  EXPECT_TRUE(assumes(one, "parallel.dp = 2"));
  EXPECT_TRUE(assumes(one, "cluster.preset = \"h100-rails\""));
  EXPECT_FALSE(assumes(one, "parallel.tp"));
}

// What is measured by an MFU stays the published hardware's, whatever is set.
TEST(Validation, AHalvedPeakMovesPredictionsAsPlanDoesAndNotWhatWasMeasured) {
  const std::string text =
      "source,model,layers,hidden,heads,kv_heads,ffn,vocab,seq,gpu,n_gpus,tp,pp,micro_batch,global_batch_"
      "seqs,"
      "mfu_pct\n" +
      model + "H100 80G,16,4,2,1,32,40\n";
  const Measurements rows = read_measurements(text, "f");
  const Case plain = validate(rows).cases.at(0);
  const Validation halved = validate(rows, {"cluster.peak_flops_bf16=494.75e12"});
  ASSERT_EQ(halved.cases.size(), 1u);
  const Case& one = halved.cases[0];
  EXPECT_EQ(halved.settings, std::vector<std::string>{"cluster.peak_flops_bf16=494.75e12"});
  EXPECT_EQ(one.measured, plain.measured);
  EXPECT_EQ(plain.run.cluster.peak_flops_bf16, 2 * one.run.cluster.peak_flops_bf16);
  EXPECT_GT(one.predicted, 1.5 * plain.predicted);
  EXPECT_LT(one.predicted, 2 * plain.predicted);
  EXPECT_EQ(one.predicted, plan::plan_of(one.run).step.seconds);
}

// The last word: over a preset's curve too, a curve as TOML or the constant share that takes its place; and
// over what the row says.
TEST(Validation, SettingsAreTheLastWord) {
  const Measurements rows = read_measurements(columns + model + "H100 80G,16,4,2,1,1,32,none,9,\n", "f");
  const Case plain = validate(rows).cases.at(0);
  const Case curve = validate(rows, {"cluster.gemm_curve=[{ flops = 1e9, efficiency = 0.3 }]"}).cases.at(0);
  const Case share = validate(rows, {"cluster.gemm_efficiency=0.3"}).cases.at(0);
  EXPECT_GT(curve.predicted, 1.2 * plain.predicted);
  EXPECT_EQ(curve.predicted, share.predicted);
  const Case zero = validate(rows, {"parallel.zero=0", "parallel.zero=2"}).cases.at(0);
  EXPECT_EQ(zero.run.parallel.zero, 2);
  EXPECT_TRUE(assumes(plain, "parallel.zero"));
  EXPECT_FALSE(assumes(zero, "parallel.zero"));
}

TEST(Validation, ARowThatASettingDoesNotFitIsSkippedWhereOthersAreNot) {
  const Measurements rows = read_measurements(
      columns + model + "H100 80G,16,4,2,1,1,32,none,9,\n" + model + "H100 80G,8,8,1,1,1,32,none,9,\n", "f");
  const Validation v = validate(rows, {"parallel.tp=8"});
  ASSERT_EQ(v.cases.size(), 1u);
  EXPECT_EQ(v.cases[0].row.row, 2);
  EXPECT_NE(v.skipped.at(0).reason.find("cluster.gpus = 16: must be"), std::string::npos)
      << v.skipped[0].reason;
  EXPECT_THROW(validate(rows, {"parallel.tp=7"}), UsageError);
}

TEST(Validation, AnEmptyMicroBatchIsTheFastestThatFits) {
  const Validation v = of(model + "H100 80G,16,4,2,1,,32,none,9,\n");
  ASSERT_EQ(v.cases.size(), 1u) << v.skipped.at(0).reason;
  const Case& chosen = v.cases[0];
  EXPECT_TRUE(assumes(chosen, "the one predicted fastest that fits"));
  int others = 0;
  for (const char* micro_batch : {"1", "2", "4", "8"}) {
    const Validation given = of(model + "H100 80G,16,4,2,1," + micro_batch + ",32,none,9,\n");
    ASSERT_EQ(given.cases.size(), 1u);
    const Case& one = given.cases[0];
    if (!plan::plan_of(one.run).memory.fits()) continue;
    ++others;
    EXPECT_LE(chosen.predicted, one.predicted) << micro_batch;
    if (one.run.parallel.micro_batch == chosen.run.parallel.micro_batch) {
      EXPECT_EQ(chosen.predicted, one.predicted);
    }
  }
  EXPECT_GT(others, 1);
}

TEST(Validation, SkipsWhatItDoesNotUnderstandAndSaysWhy) {
  const Validation v =
      of(model + "H100 80G,16,4,2,1,1,32,sometimes,9,\n" +  //
         model + "Z9,16,4,2,1,1,32,none,9,\n" +             //
         model + "H100 80G,16,,2,1,1,32,none,9,\n" +        //
         model + "H100 80G,16,4,2,1,1,33,none,9,\n" +       //
         "mine,Llama 8B fp8,32,4096,32,8,14336,128256,8192,H100 80G,16,4,2,1,1,32,none,9,\n" +
         "mine,Llama 8B,32,4096,32,8,,128256,8192,H100 80G,16,4,2,1,1,32,none,9,\n");
  EXPECT_TRUE(v.cases.empty());
  ASSERT_EQ(v.skipped.size(), 6u);
  EXPECT_EQ(v.skipped[0].reason, "recompute = \"sometimes\" is not known");
  EXPECT_EQ(v.skipped[1].reason, "there is no preset for the GPU \"Z9\"");
  EXPECT_EQ(v.skipped[2].reason, "the layout is not given");
  EXPECT_EQ(v.skipped[3].reason.substr(0, 23), "train.global_batch = 33");
  EXPECT_EQ(v.skipped[4].reason, "fp8 is not built");
  EXPECT_EQ(v.skipped[5].reason, "model.ffn is not given");
}

TEST(Validation, ErrorsAreSummedBySource) {
  const std::string other = "other,Llama 8B,32,4096,32,8,14336,128256,8192,";
  const double p = of(model + "H100 80G,16,4,2,1,1,32,none,9,\n").cases.at(0).predicted;
  const auto row = [&](const std::string& head, double times) {
    return head + "H100 80G,16,4,2,1,1,32,none," + std::to_string(p * times) + ",\n";
  };
  const Validation v =
      of(row(model, 1.25) + row(model, 0.8) + row(other, 2) + other + "Z9,16,4,2,1,1,32,none,9,\n");
  EXPECT_EQ(v.sources(), (std::vector<std::string>{"mine", "other"}));
  const Errors mine = v.errors("mine"), theirs = v.errors("other"), all = v.errors();
  EXPECT_EQ(mine.rows, 2);
  EXPECT_EQ(theirs.rows, 2);
  EXPECT_EQ(theirs.skipped, 1);
  EXPECT_NEAR(mine.mean, (0.2 + 0.25) / 2, 1e-6);
  EXPECT_NEAR(mine.most, 0.25, 1e-6);
  EXPECT_NEAR(mine.bias, (-0.2 + 0.25) / 2, 1e-6);
  EXPECT_NEAR(all.mean, (0.2 + 0.25 + 0.5) / 3, 1e-6);
  EXPECT_TRUE(std::isnan(all.memory_mean));
  EXPECT_EQ(all.held_out_rows, 0);  // one source has two rows, the other one
}

TEST(Validation, OfThreeRowsOneIsHeldOut) {
  const std::string row = "H100 80G,16,4,2,1,1,32,none,9,\n";
  const std::string known = "SimuMax" + model.substr(model.find(','));
  const Validation v = of(known + row + known + row + known + row);
  ASSERT_EQ(v.cases.size(), 3u);
  EXPECT_EQ(v.errors().held_out_rows, 1);
  for (const Case& one : v.cases) EXPECT_NE(one.held_out, one.fitted);
  EXPECT_EQ(std::count_if(v.cases.begin(), v.cases.end(), [](const Case& one) { return one.held_out; }), 1);
}

// Nothing was fitted on somebody's own rows.
TEST(Validation, RowsOfAnUnknownSourceAreNeitherFittedNorHeldOut) {
  const std::string row = "H100 80G,16,4,2,1,1,32,none,9,\n";
  const Validation v = of(model + row + model + row + model + row);
  ASSERT_EQ(v.cases.size(), 3u);
  for (const Case& one : v.cases) EXPECT_FALSE(one.held_out || one.fitted);
  EXPECT_EQ(v.errors().held_out_rows, 0);
  EXPECT_TRUE(std::isnan(v.errors().fitted_mean));
}

}  // namespace
}  // namespace lockstep::validate
