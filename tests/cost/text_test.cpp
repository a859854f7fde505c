#include "cost/text.hpp"

#include <gtest/gtest.h>

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

}  // namespace
}  // namespace lockstep::cost
