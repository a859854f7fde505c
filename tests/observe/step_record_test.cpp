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

TEST(StepLine, EndsWithWhatWasExposedByAxis) {
  StepRecord record = example();
  record.seconds = 0.5;
  record.waits = StepWaits{{.tp = 0.04, .pp = 0.02, .dp = 0.011}, {.tp = 0.04, .pp = 0.2, .dp = 0.1}};
  const std::string line = step_line(record);
  EXPECT_TRUE(line.ends_with("eta 0:03:12  exposed 14% (tp 8 pp 4 dp 2)")) << line;
  record.skipped = true;
  EXPECT_TRUE(step_line(record).ends_with("dp 2)  skipped"));
  record.trouble = "NaN in layers.3 attention on rank 2";
  EXPECT_TRUE(step_line(record).ends_with("dp 2)  skipped: NaN in layers.3 attention on rank 2"));
  record.trouble.clear();
  // A single worker has nothing to wait for, and a step whose waits never came has none to show.
  record.waits = StepWaits{};
  EXPECT_TRUE(step_line(record).ends_with("eta 0:03:12  skipped"));
  record.waits.reset();
  EXPECT_TRUE(step_line(record).ends_with("eta 0:03:12  skipped"));
}

TEST(Waits, TheirMeanIsOverRanks) {
  EXPECT_EQ(mean_waits({}), std::nullopt);
  const StepWaits one{{.tp = 1, .dp = 3}, {.pp = 8}}, other{{.tp = 3, .cp = 2}, {.pp = 0}};
  EXPECT_EQ(mean_waits({one, other}), (StepWaits{{.tp = 2, .cp = 1, .dp = 1.5}, {.pp = 4}}));
  EXPECT_EQ(one.exposed.total(), 4);
  EXPECT_EQ(exposed_text(one.exposed, 0), "") << "no share of nothing";
  EXPECT_EQ(exposed_text({.tp = 0.08, .dp = 0.004}, 1), "exposed 8% (tp 8)");
  EXPECT_EQ(exposed_text({.dp = 0.004}, 1), "exposed 0%");
}

TEST(Waits, HiddenIsWhatWasUnderWayAndNotExposedNeverLessThanNone) {
  const StepWaits waits{{.tp = 2, .cp = 0.25, .pp = 3, .dp = 1}, {.tp = 2, .cp = 1, .pp = 2, .dp = 4}};
  EXPECT_EQ(hidden_seconds(waits), (ExposedSeconds{.tp = 0, .cp = 0.75, .pp = 0, .dp = 3}));
  ExposedSeconds sum{.tp = 1, .dp = 0.5};
  sum += {.tp = 2, .cp = 3, .pp = 4, .dp = 5};
  EXPECT_EQ(sum, (ExposedSeconds{3, 3, 4, 5.5}));
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
