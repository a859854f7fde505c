// `lockstep validate` from outside: its files, its JSON, and what it says of bad input.
#include <gtest/gtest.h>

#include <fstream>
#include <sstream>

#include "base/json.hpp"
#include "base/terminal_text.hpp"
#include "cli/program.hpp"

namespace lockstep::test {
namespace {

const std::string own = std::string(LOCKSTEP_SOURCE_DIR) + "/data/published/measurements.csv";

TEST(Validate, WithoutAFileItTakesTheRowsThatLockstepCarries) {
  const Outcome without = lockstep({"validate", "--json"}), with = lockstep({"validate", own, "--json"});
  ASSERT_EQ(without.code, 0) << without.err;
  ASSERT_EQ(with.code, 0) << with.err;
  Json a = Json::parse(without.out), b = Json::parse(with.out);
  EXPECT_EQ(a["file"], "data/published/measurements.csv");
  EXPECT_EQ(b["file"], own);
  a.erase("file");
  b.erase("file");
  EXPECT_EQ(a, b);
}

TEST(Validate, JsonHasTheNamesOfTheInterface) {
  const Json json = Json::parse(lockstep({"validate", "--json"}).out);
  EXPECT_EQ(json.at("rows"), 25);
  EXPECT_EQ(json.at("rows"), json.at("cases").size() + json.at("skipped").size());
  for (const char* name : {"mape_step_time", "max_error", "mape_memory", "by_source"}) {
    EXPECT_TRUE(json.contains(name)) << name;
  }
  size_t rows = 0;
  for (const auto& [source, part] : json.at("by_source").items()) {
    for (const char* name : {"rows", "skipped", "mape_step_time", "max_error", "mape_memory"}) {
      EXPECT_TRUE(part.contains(name)) << source << " " << name;
    }
    rows += part.at("rows").get<size_t>();
  }
  EXPECT_EQ(rows, 25u);
  for (const Json& one : json.at("cases")) {
    const double measured = one.at("measured").get<double>(), predicted = one.at("predicted").get<double>();
    EXPECT_DOUBLE_EQ(one.at("error").get<double>(), predicted / measured - 1);
    for (const char* name : {"source", "model", "n_gpus", "assumed"}) EXPECT_TRUE(one.contains(name)) << name;
  }
  for (const Json& one : json.at("skipped")) EXPECT_FALSE(one.at("reason").get<std::string>().empty());
}

TEST(Validate, TheTableNamesSourcesAndSkippedRows) {
  const Outcome outcome = lockstep({"validate"});
  ASSERT_EQ(outcome.code, 0) << outcome.err;
  for (const char* text : {"Megatron-LM SC21 Table 1", "Korthikanti 2022 Table 5", "MegaScale NSDI24 Table 2",
                           "Llama 3 Herd Table 4", "sliding-window attention", "held out"}) {
    EXPECT_NE(outcome.out.find(text), std::string::npos) << text;
  }
  EXPECT_EQ(outcome.out.find("assumed:"), std::string::npos);
  EXPECT_NE(lockstep({"validate", "--rows"}).out.find("assumed: parallel.micro_batch"), std::string::npos);
}

// Llama 3's GPUs held what plan's memory model does not let in.
TEST(Validate, RowsThatWouldNotFitAreNamed) {
  const Json json = Json::parse(lockstep({"validate", "--json"}).out);
  for (const Json& one : json.at("cases")) {
    EXPECT_EQ(one.at("fits").get<bool>(), one.at("total_bytes") <= one.at("capacity_bytes"));
    EXPECT_EQ(one.at("fits").get<bool>(), one.at("source") != "Llama 3 Herd Table 4");
    EXPECT_GE(one.at("slowest_choice"), one.at("predicted"));
    EXPECT_LE(one.at("choices_that_fit"), one.at("choices"));
  }
  const std::string text = lockstep({"validate", "--rows"}).out;
  EXPECT_NE(
      text.find("\n3 rows would not fit by plan's memory, the fullest with 101 GB of 80.0 GB: rows 23-25.\n"),
      std::string::npos)
      << text;
  EXPECT_NE(text.find("  memory by plan: 81.4 GB of 80.0 GB, which does not fit\n"), std::string::npos);
  const std::string fits = lockstep({"validate", "--set", "cluster.memory_bytes=110e9"}).out;
  EXPECT_EQ(fits.find("would not fit"), std::string::npos) << fits;
}

TEST(Validate, BadRowsAreSkippedAndBadFilesRefused) {
  const TemporaryFolder folder;
  const std::string file = folder.path() / "rows.csv";
  const std::string header =
      "source,model,layers,hidden,heads,kv_heads,ffn,vocab,seq,gpu,n_gpus,tp,pp,micro_batch,global_batch_"
      "seqs,step_time_s\n";
  const std::string good = "mine,Llama 8B,32,4096,32,8,14336,128256,8192,H100 80G,8,8,1,1,8,";
  std::ofstream(file) << header << good << "3.5\n"
                      << good << "soon\n"
                      << good << "\n"
                      << "mine,Llama 8B,32,4096,32,8,14336,128256,8192,TPU v5p,8,8,1,1,8,3.5\n"
                      << "mine,Llama 8B,32,4096,32,8,14336,128256,8192,H100 80G,9,8,1,1,8,3.5\n";
  const Outcome outcome = lockstep({"validate", file, "--json"});
  ASSERT_EQ(outcome.code, 0) << outcome.err;
  const Json json = Json::parse(outcome.out);
  ASSERT_EQ(json.at("cases").size(), 1u) << outcome.out;
  ASSERT_EQ(json.at("skipped").size(), 4u);
  const auto reason = [&](size_t i) { return json.at("skipped")[i].at("reason").get<std::string>(); };
  EXPECT_EQ(reason(0), "step_time_s = \"soon\" is not a number above 0: correct the cell, or leave it empty");
  EXPECT_EQ(reason(1), "step_time_s, tflops_per_gpu and mfu_pct are all empty");
  EXPECT_EQ(reason(2).find("there is no preset for the GPU \"TPU v5p\"; there are "), 0u) << reason(2);
  EXPECT_NE(reason(3).find("cluster.gpus = 9"), std::string::npos) << reason(3);

  const std::string text = lockstep({"validate", file}).out;
  EXPECT_NE(text.find("or leave it empty: row 2 (line 3)"), std::string::npos) << text;

  std::ofstream(file) << "a,b\n1,2\n";
  const Outcome refused = lockstep({"validate", file});
  EXPECT_EQ(refused.code, 2);
  EXPECT_NE(refused.err.find("there is no column source"), std::string::npos) << refused.err;
  EXPECT_EQ(lockstep({"validate", "absent.csv"}).code, 2);
  EXPECT_EQ(lockstep({"validate", file, file}).code, 2);
}

// Whatever a file holds: nothing that a terminal obeys, no line wider than the screen, no cell without end.
TEST(Validate, WhatAFileHoldsNeitherReachesTheTerminalNorWidensIt) {
  const TemporaryFolder folder;
  const std::string file = folder.path() / "rows.csv";
  std::ofstream(file)
      << "source,model,layers,hidden,heads,kv_heads,ffn,vocab,seq,gpu,n_gpus,tp,pp,micro_batch,global_batch_"
         "seqs,step_time_s,\x1B]0;title\x07\n"
      << "mi\x1B[31mne,Llama \xFF 8B,32,4096,32,8,14336,128256,8192,H100 80G,8,8,1,1,8,3.5,\n"
      << "\xE6\x9D\x83\xE9\x87\x8D,Llama,32,4096,32,8,14336,128256,8192,H100 80G,8,8,1,1,8,1e300,\n"
      << "torchtitan and what else it may be called by those who ran it,Llama "
         "TP,32,4096,32,8,14336,128256,8192,"
         "H100,8,8,1,1,8,3.5,\n"
      << "mine,Llama,32,4096,32,8,14336,128256,8192,H100\x1B[2J,8,8,1,1,8,1e-300,\n"
      << "mine,Llama,32,4096,32,8,14336,128256,8192,H100,8,8,1,1,8,1e-300,\n";
  for (const char* more : {"", "--rows"}) {
    std::vector<std::string> arguments = {"validate", file};
    if (*more != 0) arguments.emplace_back(more);
    const Outcome outcome = lockstep(arguments);
    ASSERT_EQ(outcome.code, 0) << outcome.err;
    EXPECT_EQ(escaped(outcome.out, "\n"), outcome.out);
    EXPECT_NE(outcome.out.find("\\x1B[2J"), std::string::npos) << "shown";
    EXPECT_NE(outcome.out.find("torchtitan and what els…"), std::string::npos) << outcome.out;
    std::istringstream lines(outcome.out);
    for (std::string line; std::getline(lines, line);) EXPECT_LE(columns(line), terminal_columns) << line;
  }
}

// A long name beside a wide layout and "held out": the name gives way, the figures stay.
TEST(Validate, ALongNameGivesWayToTheFigures) {
  const TemporaryFolder folder;
  const std::string file = folder.path() / "rows.csv";
  std::ofstream out(file);
  out << "source,model,layers,hidden,heads,kv_heads,ffn,vocab,seq,gpu,n_gpus,tp,cp,pp,vpp,micro_batch,global_"
         "batch_seqs,recompute,step_time_s\n";
  for (const char* time : {"900.5", "901.5", "902.5"}) {
    out << "SimuMax,Llama of a hundred and twenty-eight "
           "layers,128,16384,128,8,53248,128256,8192,H100,16384,8,1,"
           "16,8,16,32768,full,"
        << time << "\n";
  }
  out.close();
  const Outcome outcome = lockstep({"validate", file});
  ASSERT_EQ(outcome.code, 0) << outcome.err;
  EXPECT_NE(outcome.out.find("tp 8 cp 1 pp 16x8 dp 128 mb 16"), std::string::npos) << outcome.out;
  EXPECT_NE(outcome.out.find("held out\n"), std::string::npos) << outcome.out;
  EXPECT_NE(outcome.out.find("     1  Llama of a"), std::string::npos) << outcome.out;
  std::istringstream lines(outcome.out);
  for (std::string line; std::getline(lines, line);) EXPECT_LE(columns(line), terminal_columns) << line;
}

TEST(Validate, SetOverridesAKeyOfEveryRowAndTheHeadSaysSo) {
  const Outcome plain = lockstep({"validate"});
  const Outcome set = lockstep({"validate", "--set", "cluster.peak_flops_bf16=100e12"});
  ASSERT_EQ(set.code, 0) << set.err;
  EXPECT_NE(set.out.find("Set on every row: cluster.peak_flops_bf16=100e12\n"), std::string::npos) << set.out;
  EXPECT_EQ(plain.out.find("Set on every row"), std::string::npos);
  const Json json =
      Json::parse(lockstep({"validate", "--json", "--set", "cluster.peak_flops_bf16=100e12"}).out);
  EXPECT_EQ(json.at("set"), Json::array({"cluster.peak_flops_bf16=100e12"}));
  EXPECT_EQ(Json::parse(lockstep({"validate", "--json"}).out).at("set"), Json::array());
}

TEST(Validate, ASettingThatNoRowAllowsIsRefused) {
  const auto refused = [](const std::string& setting) {
    const Outcome outcome = lockstep({"validate", "--set", setting});
    EXPECT_EQ(outcome.code, 2) << setting;
    return outcome.err;
  };
  EXPECT_NE(
      refused("cluster.peak_flops_bf17=1e12")
          .find("--set cluster.peak_flops_bf17=1e12: cluster.peak_flops_bf17 = 1e12: unknown key; did you "
                "mean cluster.peak_flops_bf16?"),
      std::string::npos);
  EXPECT_NE(refused("cluster.gemm_efficiency=2").find("must be from 1e-6 to 1.0"), std::string::npos);
  EXPECT_NE(refused("cluster.gemm_curve=[{ flops = 1e9 }]").find("cluster.gemm_curve"), std::string::npos);
  EXPECT_NE(refused("cluster").find("an override is written table.key=value"), std::string::npos);
}

}  // namespace
}  // namespace lockstep::test
