#include "cost/text.hpp"

#include <gtest/gtest.h>

#include <sstream>

namespace lockstep::cost {
namespace {

TEST(TextTable, FirstColumnLeftOthersRightUnderTheirNames) {
  TextTable table({});
  table.header({"part", "time"});
  table.row({"compute", "44.4 ms"});
  table.row({"dp", "5 µs"});
  EXPECT_EQ(table.text(),
            "  part        time\n"
            "  compute  44.4 ms\n"
            "  dp          5 µs\n");
}

TEST(TextTable, AChineseCharacterTakesTwoColumns) {
  TextTable table({});
  table.row({"权重", "1"});
  table.row({"bytes", "22"});
  EXPECT_EQ(table.text(), "  权重    1\n  bytes  22\n");
}

TEST(TextTable, ColoursTakeNoWidth) {
  TextTable table({true});
  table.header({"part", "s"});
  table.row({"tp", "1"}, "tp");
  EXPECT_EQ(table.text(), "\x1b[2m  part  s\x1b[0m\n  \x1b[38;2;240;160;75mtp\x1b[0m    1\n");
}

TEST(StepText, RatesCarryThePrefixThatFits) {
  StepFigures f;
  f.seconds = 1;
  f.tokens = 2048;
  f.tokens_per_second = 2048;
  f.tflops_per_gpu = 0.0123;
  EXPECT_NE(step_text(f, "computed", {}).find("; 12.3 GFLOP/s a GPU"), std::string::npos);
  f.tflops_per_gpu = 489;
  EXPECT_NE(step_text(f, "computed", {}).find("; 489 TFLOP/s a GPU"), std::string::npos);
}

TEST(RunLine, SaysHowTheRunIsCut) {
  config::RunFile run;
  run.name = "sample";
  run.model.layers = 2;
  run.model.hidden = 64;
  run.model.ffn = 96;
  run.model.heads = run.model.kv_heads = 8;
  run.model.vocab = 256;
  run.cluster.gpu = "test";
  config::ParallelConfig& p = run.parallel;
  p.cp = 4;
  p.dp = 2;
  run.train.global_batch = 2;
  EXPECT_EQ(run_line(run),
            "sample: 103K parameters on 8 x test\n"
            "tp 1 x cp 4 x pp 1 x dp 2, 1f1b, zero 1\n"
            "1 micro-batch of 1 x 128 tokens\n");
  p.zero = 3;
  p.gradient_scatter = config::GradientScatter::micro_batch;
  p.schedule = config::ScheduleKind::interleaved;
  p.virtual_stages = 2;
  p.replicas = 6;
  p.recompute = {"norm", "swiglu"};
  p.recompute_every = 2;
  run.train.global_batch = 6;
  EXPECT_EQ(run_line(run),
            "sample: 103K parameters on 8 x test\n"
            "tp 1 x cp 4 x pp 1 x dp 2, interleaved, 2 chunks a stage, zero 3, scattering every micro-batch\n"
            "recompute norm, swiglu in one of 2 layers\n"
            "3 micro-batches of 1 x 128 tokens, for 6 logical replicas in 3 rounds\n");
}

}  // namespace
}  // namespace lockstep::cost
