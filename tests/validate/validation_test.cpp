// What becomes of a row: choices, assumptions, reasons to skip it, and the summary of errors.
#include "validate/validation.hpp"

#include <fmt/format.h>
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

// The span of what an empty cell may have been, against each choice by itself.
TEST(Validation, AnEmptyCellsSpanIsThatOfTheChoicesThatFit) {
  const auto row = [](const std::string& gpus, const std::string& micro_batch) {
    return of(model + "H100 80G," + gpus + ",4,2,1," + micro_batch + ",32,none,9,\n").cases.at(0);
  };
  double fastest = 1e9, slowest = 0;
  size_t fitting = 0;
  for (const char* micro_batch : {"1", "2", "4", "8"}) {
    const Case one = row("16", micro_batch);
    EXPECT_EQ(one.choices.layouts, 1u);
    if (!one.fits) continue;
    ++fitting;
    fastest = std::min(fastest, one.predicted);
    slowest = std::max(slowest, one.predicted);
  }
  const Case chosen = row("16", "");
  EXPECT_EQ(chosen.choices.layouts, 4u);
  EXPECT_EQ(chosen.choices.fitting, fitting);
  EXPECT_EQ(chosen.predicted, fastest);
  EXPECT_EQ(chosen.choices.slowest, slowest);
  EXPECT_GT(slowest, 1.001 * fastest);
  EXPECT_TRUE(
      assumes(chosen, fmt::format("(of 4 choices the one predicted fastest that fits; the slowest that "
                                  "fits takes {:.1f} % longer)",
                                  100 * (slowest / fastest - 1))));
}

TEST(Validation, WhatFitsIsWhatThePlansMemorySays) {
  const auto row = [](const std::string& micro_batch) {
    return of(model + "H100 80G,2,2,1,1," + micro_batch + ",32,none,9,\n").cases.at(0);
  };
  for (const char* micro_batch : {"1", "8"}) {
    const Case one = row(micro_batch);
    const plan::MemoryReport memory = plan::plan_of(one.run).memory;
    EXPECT_EQ(one.total_memory, static_cast<double>(memory.fullest().total()));
    EXPECT_EQ(one.fits, one.total_memory <= 80e9);
    EXPECT_EQ(one.fits, memory.fits());
  }
  // 8.03e9 parameters on 2 GPUs: 16 bytes of each are 64 GB a GPU, and no choice leaves room for more.
  const Case none = row("");
  EXPECT_EQ(none.choices.fitting, 0u);
  EXPECT_FALSE(none.fits);
  EXPECT_TRUE(assumes(none, "(of 4 choices the one predicted fastest; none fits, and the slowest takes "));
}

// arXiv:2104.04473, section 5.1: Table 1 ran with the interleaved schedule. 60 layers on 4 stages: 3 or 5
// chunks.
TEST(Validation, OfSc21AnEmptyVppIsTheFastestInterleavedOne) {
  const auto row = [](const std::string& layers, const std::string& vpp) {
    return of("Megatron-LM SC21,GPT," + layers + ",10240,80,80,40960,51200,2048,A100-80G,1024,8,4," + vpp +
              ",1,1792,full,16,\n");
  };
  const Validation v = row("60", "");
  ASSERT_EQ(v.cases.size(), 1u) << v.skipped.at(0).reason;
  const Case& chosen = v.cases[0];
  EXPECT_EQ(chosen.run.parallel.schedule, config::ScheduleKind::interleaved);
  EXPECT_TRUE(assumes(chosen, "parallel.schedule = \"interleaved\" (section 5.1; of its scatter/gather"));
  const double three = row("60", "3").cases.at(0).predicted, five = row("60", "5").cases.at(0).predicted;
  EXPECT_NE(three, five);
  EXPECT_EQ(chosen.predicted, std::min(three, five));
  const Case given = row("60", "1").cases.at(0);
  EXPECT_EQ(given.run.parallel.schedule, config::ScheduleKind::one_f_one_b);
  EXPECT_FALSE(assumes(given, "interleaved"));
  EXPECT_EQ(row("44", "").skipped.at(0).reason,
            "no vpp from 2 to 8 cuts the 44 layers and the micro-batches of 4 stages evenly: give vpp and "
            "micro_batch");
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
  EXPECT_EQ(
      v.skipped[1].reason,
      "there is no preset for the GPU \"Z9\"; there are A100 80G, H100 96G, H100, H200, B200, GB200, as "
      "SXM modules; or --set cluster.preset or cluster.file");
  EXPECT_EQ(v.skipped[2].reason, "the layout is not given");
  EXPECT_EQ(v.skipped[3].reason.substr(0, 23), "train.global_batch = 33");
  EXPECT_EQ(v.skipped[4].reason, "fp8 is not built");
  EXPECT_EQ(v.skipped[5].reason, "model.ffn is not given");
}

// Bandwidths, clocks and memory of a PCIe card are not those of the SXM module.
TEST(Validation, OnlyKnownWordsNameAGpu) {
  const auto preset_of = [](const std::string& gpu) {
    const Validation v = of(model + gpu + ",16,4,2,1,1,32,none,9,\n");
    return v.cases.empty() ? "" : v.cases[0].run.cluster.preset + " " + v.cases[0].run.cluster.device;
  };
  for (const char* name : {"H100-PCIe", "H100 NVL", "H100 (PCIe)", "H100-80G 350W", "GH200", "A100",
                           "A100-40G", "H100 64G", "A100 80G PCIe", "B2000"}) {
    EXPECT_EQ(preset_of(name), "") << name;
  }
  EXPECT_EQ(preset_of("A100-80G SXM (Selene)").substr(0, 11), "a100-selene");
  EXPECT_EQ(preset_of("NVIDIA A100-SXM4-80GB").substr(0, 11), "a100-selene");
  EXPECT_EQ(preset_of("NVIDIA H100 80GB HBM3").substr(0, 10), "h100-rails");
  EXPECT_EQ(preset_of("H100-96G 500W"), "h100-rails h100-96g");
  EXPECT_EQ(preset_of("h200"), "h100-rails h200");
  EXPECT_EQ(preset_of("B200-SXM").substr(0, 9), "b200-nvl8");
}

TEST(Validation, AnArchitectureThatTheNameDoesNotSayIsSaidToBeAssumed) {
  const auto assumed = [](const std::string& name) {
    return of("mine," + name + ",32,4096,32,32,16384,51200,2048,H100,16,4,2,1,1,32,none,9,\n").cases.at(0);
  };
  EXPECT_TRUE(assumes(assumed("GPT 7B"), "architecture = \"gpt\" (by the model's name)"));
  EXPECT_TRUE(assumes(assumed("Llama 8B"), "architecture = \"llama\" (by the model's name)"));
  EXPECT_TRUE(assumes(
      assumed("M"),
      "architecture = \"gpt\" (the name \"M\" says neither llama nor gpt; by its shapes nothing speaks "
      "against it)"));
}

// Fewer key and value heads than query heads, or other products than a GPT's: a llama's shapes.
TEST(Validation, AnArchitectureIsSeenInTheShapes) {
  const auto architecture = [](const std::string& name, const std::string& kv_heads, const std::string& ffn) {
    return of("mine," + name + ",32,4096,32," + kv_heads + "," + ffn +
              ",51200,2048,H100,16,4,2,1,1,32,none,9,\n");
  };
  using config::Architecture;
  const auto of_one = [&](const std::string& name, const std::string& kv_heads, const std::string& ffn) {
    return architecture(name, kv_heads, ffn).cases.at(0).run.model.architecture;
  };
  EXPECT_EQ(of_one("mine", "8", "16384"), Architecture::llama);
  EXPECT_EQ(of_one("mine", "32", "11008"), Architecture::llama);
  EXPECT_EQ(of_one("mine", "32", "16384"), Architecture::gpt);
  EXPECT_EQ(of_one("GPT", "8", "11008"), Architecture::gpt);  // it says so itself
  EXPECT_EQ(architecture("Mixtral 8x7B", "8", "14336").skipped.at(0).reason,
            "mixtures of experts are not built");
}

// Of a row whose micro-batch is chosen: not where a setting gives it.
TEST(Validation, WhatASettingFixesIsNoChoice) {
  const Measurements rows = read_measurements(
      "source,model,layers,hidden,heads,ffn,vocab,seq,gpu,n_gpus,tp,pp,dp,global_batch_seqs,recompute,step_"
      "time_s\n"
      "Megatron-LM SC21,GPT 3.6B,30,3072,32,12288,51200,2048,A100-80G,64,2,1,32,512,full,3.7\n",
      "f");
  const Case chosen = validate(rows).cases.at(0),
             set = validate(rows, {"parallel.micro_batch=2"}).cases.at(0);
  EXPECT_EQ(set.run.parallel.micro_batch, 2);
  EXPECT_TRUE(assumes(chosen, "choices"));
  EXPECT_FALSE(assumes(set, "choices"));
}

// Sizes whose products 64 bits do not hold are refused before they are multiplied.
TEST(Validation, HugeSizesAreRefused) {
  const Validation v = validate(
      read_measurements("source,model,layers,hidden,heads,seq,vocab,gpu,n_gpus,tp,cp,pp,dp,micro_batch,vpp,"
                        "global_batch_seqs,step_time_s\n"
                        "mine,GPT,8589934592,64,2,64,100,H100,8,1,1,4294967296,4294967296,,,8,1\n"
                        "mine,GPT,8,64,2,64,100,H100,8,1000000,1000000,1000000,1000000,,,8,1\n",
                        "f"));
  ASSERT_EQ(v.skipped.size(), 2u);
  EXPECT_NE(v.skipped[0].reason.find("pp = \"4294967296\" is not a whole number from 1 to 1,000,000"),
            std::string::npos);
  EXPECT_NE(v.skipped[1].reason.find("parallel.tp"), std::string::npos) << v.skipped[1].reason;
}

// A GPU without a preset is what the settings make it.
TEST(Validation, AGpuWithoutAPresetMayBeSet) {
  const Measurements rows = read_measurements(
      "source,model,layers,hidden,heads,kv_heads,ffn,vocab,seq,gpu,n_gpus,tp,pp,micro_batch,global_batch_"
      "seqs,"
      "recompute,step_time_s\n" +
          model + "Z9,16,4,2,1,32,none,9\n",
      "f");
  EXPECT_TRUE(validate(rows).cases.empty());
  const Validation set = validate(rows, {"cluster.preset=h100-24k"});
  ASSERT_EQ(set.cases.size(), 1u) << set.skipped.at(0).reason;
  EXPECT_EQ(set.cases[0].run.cluster.gpu, "H100-80G-SXM");
}

// A row's own virtual stages stand, where one stage of ZeRO-3 would be cut layer by layer.
TEST(Validation, WhatARowGivesIsNeverOverwritten) {
  const auto chunks = [](const std::string& vpp) {
    const Validation v = validate(read_measurements(
        "source,model,layers,hidden,heads,kv_heads,ffn,vocab,seq,gpu,n_gpus,tp,pp,vpp,micro_batch,"
        "global_batch_seqs,recompute,zero_stage,step_time_s\n" +
            model + "H100 80G,16,1,1," + vpp + ",1,32,full,3,9\n",
        "f"));
    EXPECT_EQ(v.cases.size(), 1u) << v.skipped.at(0).reason;
    EXPECT_EQ(assumes(v.cases.at(0), "parallel.virtual_stages"), vpp.empty());
    return v.cases.at(0).run.parallel.virtual_stages;
  };
  EXPECT_EQ(chunks(""), 32);
  EXPECT_EQ(chunks("1"), 1);
  EXPECT_EQ(chunks("4"), 4);
}

TEST(Validation, FiguresThatCannotBeAreRefused) {
  const auto reason = [](const std::string& cells) {
    const Validation v = validate(read_measurements(
        "source,model,layers,hidden,heads,kv_heads,ffn,vocab,seq,gpu,n_gpus,tp,pp,micro_batch,"
        "global_batch_seqs,recompute,params_b,step_time_s,tflops_per_gpu,tflops_kind,memory_gib\n" +
            model + "H100 80G,16,4,2,1,32,none," + cells + "\n",
        "f"));
    return v.skipped.empty() ? std::string() : v.skipped[0].reason;
  };
  // 8.03e9 parameters; 6 N' T and causal attention of 262,144 tokens, with N' the 7.50e9 that multiply, are
  // 1.18e16 + 0.84e15 FLOP: 0.80 s at 16 x 989.5 TFLOP/s.
  EXPECT_EQ(reason("8.03,0.9,,,"), "");
  EXPECT_EQ(reason("8.03,0.7,,,").substr(0, 27), "step_time_s = 0.7 would be ");
  EXPECT_NE(reason("8.03,0.7,,,").find("whose peak is 990 TFLOP/s"), std::string::npos)
      << reason("8.03,0.7,,,");
  EXPECT_NE(reason("8.03,1e-300,,,").find("step_time_s = 1e-300 would be "), std::string::npos);
  EXPECT_NE(reason("8.03,1e300,,,").find("less than a ten-thousandth of its peak of 990 TFLOP/s"),
            std::string::npos);
  EXPECT_NE(reason("8.03,,2000,model,").find("tflops_per_gpu = 2000 would be "), std::string::npos);
  EXPECT_EQ(reason("8.03,9,,,79"), "");
  EXPECT_NE(reason("8.03,9,,,81").find("memory_gib = 81 is more than the GPU's 80: "), std::string::npos);
  EXPECT_EQ(
      reason("530,9,,,"),
      "params_b = 530, but layers, hidden, heads, ffn and vocab make a model of 8.03B parameters: correct "
      "one of them");
  EXPECT_EQ(reason("8.6,9,,,"), "");
}

TEST(Validation, ParametersThatDifferALittleAreSaidToBeReadPast) {
  const auto read_past = [](const std::string& billions) {
    const Validation v = validate(read_measurements(
        "source,model,layers,hidden,heads,kv_heads,ffn,vocab,seq,gpu,n_gpus,tp,pp,micro_batch,"
        "global_batch_seqs,recompute,step_time_s,params_b\n" +
            model + "H100 80G,16,4,2,1,32,none,9," + billions + "\n",
        "f"));
    return assumes(v.cases.at(0),
                   "params_b = " + billions + " is read past: the shapes make a model of 8.03B parameters");
  };
  EXPECT_FALSE(read_past("8"));
  EXPECT_TRUE(read_past("7.5"));
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
