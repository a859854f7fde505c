#include "observe/step_record.hpp"

#include <gtest/gtest.h>

#include <limits>

namespace lockstep::observe {
namespace {

StepRecord example() {
  return {.step = 12,
          .steps = 200,
          .loss = 3.412,
          .grad_norm = 0.81,
          .lr = 2.9e-4,
          .tokens = 2048,
          .seconds = 0.3786,
          .memory_bytes = 1288490189,  // 1.2 x 2^30
          .tokens_per_second = 5409.6,
          .tflops = 0.13,
          .mfu = 0.214,
          .eta_seconds = 192.3};
}

TEST(StepLine, IsTheDocumentedOne) {
  EXPECT_EQ(
      step_line(example()),
      "step 12/200  loss 3.4120  grad_norm 0.81  lr 2.9e-04  mem 1.2GiB  tps 5,410  tflops 0.13  mfu 21.4%  "
      "eta 0:03:12");
}

TEST(StepLine, BadNumbersShow) {
  StepRecord record = example();
  record.loss = std::numeric_limits<double>::quiet_NaN();
  record.grad_norm = std::numeric_limits<double>::infinity();
  record.mfu = std::numeric_limits<double>::quiet_NaN();
  record.tokens_per_second = std::numeric_limits<double>::infinity();
  const std::string line = step_line(record);
  EXPECT_NE(line.find("loss nan  grad_norm inf"), line.npos) << line;
  EXPECT_NE(line.find("tps ?  tflops 0.13  mfu ?"), line.npos) << line;
}

}  // namespace
}  // namespace lockstep::observe
