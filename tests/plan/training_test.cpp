// Tokens, days, dollars and energy of whole trainings, against arithmetic by hand.
#include "plan/training.hpp"

#include <gtest/gtest.h>

#include "plan/report.hpp"

namespace lockstep::plan {
namespace {

config::RunFile large_run(const std::vector<std::string>& overrides = {}) {
  return config::load_run_file(LOCKSTEP_SOURCE_DIR "/configs/llama3-405b-16k.toml", overrides);
}

// 2,048 sequences of 8,192 tokens a step.
TEST(Training, TimeAndCost) {
  const auto step = [](int64_t sequences) {
    EXPECT_EQ(sequences, 2048);
    return StepCost{6.0, 25e6};
  };
  config::RunFile run = large_run();
  const Training t = training_of(run, step);
  EXPECT_EQ(t.tokens, 15.6e12);
  EXPECT_NEAR(t.days, 15.6e12 / 16777216 * 6 / 86400, 1e-9);
  EXPECT_NEAR(t.gpu_hours, t.days * 24 * 16384, 1e-3);
  EXPECT_NEAR(t.usd, t.gpu_hours * run.cluster.usd_per_gpu_hour, 1e-3);
  EXPECT_NEAR(t.megawatt_hours.value(), 25 * 24 * t.days, 1e-6);
  run.train.tokens = 0;
  run.train.steps = 10;
  EXPECT_EQ(training_of(run, step).tokens, 167772160);
}

// 100 steps of 512 sequences, 200 of 1,024, and 2,048 after them; a step takes a second for each 512.
class Ramp : public testing::Test {
 protected:
  Ramp() : run(large_run({"train.batch_ramp=[\"512:100\", \"1024:300\"]"})) {}
  Training training(int64_t steps, int64_t tokens) {
    run.train.steps = steps;
    run.train.tokens = tokens;
    return training_of(run, [](int64_t sequences) {
      const double seconds = static_cast<double>(sequences) / 512;
      return StepCost{seconds, 1e6 * seconds};
    });
  }
  void expect(const Training& t, double tokens, double seconds, double megawatt_seconds) {
    EXPECT_NEAR(t.tokens, tokens, 1e-9 * tokens);
    EXPECT_NEAR(t.days, seconds / 86400, 1e-9 * t.days);
    EXPECT_NEAR(t.gpu_hours, 16384 * seconds / 3600, 1e-9 * t.gpu_hours);
    EXPECT_NEAR(t.usd, t.gpu_hours * run.cluster.usd_per_gpu_hour, 1e-9 * t.usd);
    EXPECT_NEAR(t.megawatt_hours.value(), megawatt_seconds / 3600, 1e-9 * *t.megawatt_hours);
  }
  config::RunFile run;
};

TEST_F(Ramp, StepsReadWhatTheirBatchesHold) {
  // 100 x 512 + 200 x 1,024 + 700 x 2,048 sequences; 100 x 1 + 200 x 2 + 700 x 4 s; at 1, 2 and 4 MW.
  expect(training(1000, 0), 1689600.0 * 8192, 3300, 100 + 200 * 4 + 700 * 16);
}

TEST_F(Ramp, ARunMayEndInIt) {
  expect(training(150, 0), (51200.0 + 50 * 1024) * 8192, 200, 100 + 50 * 4);
  expect(training(100, 0), 51200.0 * 8192, 100, 100);
}

TEST_F(Ramp, TokensTakeItsStepsFirst) {
  // 256,000 sequences in the ramp, in 500 s; 25.5 steps of the whole batch for the rest.
  const int64_t tokens = (256000 + 52224) * 8192LL;
  expect(training(10, tokens), static_cast<double>(tokens), 500 + 102, 900 + 25.5 * 16);
  EXPECT_EQ(training(10, tokens).tokens, static_cast<double>(tokens));
}

TEST_F(Ramp, TokensMayEndInIt) {
  const int64_t tokens = (51200 + 1024 * 10 + 512) * 8192LL;
  expect(training(1000, tokens), static_cast<double>(tokens), 100 + 21, 100 + 10.5 * 4);
}

// A plan's whole training is the sum of plans of each batch.
TEST_F(Ramp, APlanSumsTheStepsOfEachBatch) {
  run.train.tokens = 0;
  run.train.steps = 1000;
  const Plan whole = plan_of(run);
  double days = 0, energy = 0;
  for (const auto& [sequences, steps] : {std::pair<int64_t, int64_t>{512, 100}, {1024, 200}, {2048, 700}}) {
    config::RunFile part = run;
    part.train.batch_ramp.clear();
    part.train.global_batch = sequences;
    part.train.steps = steps;
    const Plan plan = plan_of(part);
    EXPECT_NEAR(plan.training.days, static_cast<double>(steps) * plan.step.seconds / 86400, 1e-12);
    days += plan.training.days;
    energy += plan.training.megawatt_hours.value();
  }
  EXPECT_NEAR(whole.training.days, days, 1e-12 * days);
  EXPECT_NEAR(whole.training.megawatt_hours.value(), energy, 1e-12 * energy);
  EXPECT_EQ(whole.training.tokens, 1689600.0 * 8192);
  // A step is of the whole batch.
  EXPECT_EQ(whole.step.tokens, 2048 * 8192);
  EXPECT_NE(plan_text(whole, {}).find("with its batch ramp"), std::string::npos);
}

TEST(Training, EnergyIsUnknownWherePowerIs) {
  const config::RunFile run = large_run({"cluster.gpu_compute_watts=0"});
  EXPECT_FALSE(plan_of(run).training.megawatt_hours.has_value());
}

}  // namespace
}  // namespace lockstep::plan
