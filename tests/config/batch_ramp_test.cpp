// The batch-size ramp against a plain walk over the steps.
#include "config/batch_ramp.hpp"

#include <gtest/gtest.h>
#include <rapidcheck.h>

namespace lockstep::config {
namespace {

TEST(BatchRamp, EntriesAreTwoNumbersAndAColon) {
  EXPECT_EQ(parse_batch_stage("8:100"), (BatchStage{8, 100}));
  EXPECT_EQ(parse_batch_stage("1000000000000:1000000000000"), (BatchStage{1000000000000, 1000000000000}));
  for (const char* bad : {"", ":", "8", "8:", ":100", "8:100:9", " 8:100", "8: 100", "8:100 ", "0:5", "5:0",
                          "-8:100", "8:-1", "8.0:1", "a:b", "1000000000001:1", "99999999999999999999:1"}) {
    EXPECT_EQ(parse_batch_stage(bad), std::nullopt) << bad;
  }
}

TEST(BatchRamp, StagesEndWithTheGlobalBatch) {
  TrainConfig train;
  train.global_batch = 16;
  train.steps = 50;
  EXPECT_EQ(batch_stages(train), (std::vector<BatchStage>{{16, 50}}));
  train.batch_ramp = {"4:10", "8:20"};
  EXPECT_EQ(batch_stages(train), (std::vector<BatchStage>{{4, 10}, {8, 20}, {16, 50}}));
}

TEST(BatchRamp, StepsTakeConsecutiveSequences) {
  EXPECT_TRUE(rc::check("a walk over the steps", [] {
    TrainConfig train;
    train.steps = *rc::gen::inRange<int64_t>(1, 60);
    BatchStage last;
    std::vector<int64_t> walk;
    for (int i = *rc::gen::inRange(0, 4); i > 0; --i) {
      last.sequences += *rc::gen::inRange<int64_t>(1, 9);
      last.last_step += *rc::gen::inRange<int64_t>(1, 20);  // a ramp may be longer than the run
      train.batch_ramp.push_back(std::to_string(last.sequences) + ":" + std::to_string(last.last_step));
      walk.resize(static_cast<size_t>(last.last_step), last.sequences);
    }
    train.global_batch = last.sequences + *rc::gen::inRange<int64_t>(1, 9);
    walk.resize(100, train.global_batch);
    int64_t before = 0;
    for (int64_t step = 1; step <= 100; ++step) {
      RC_ASSERT(batch_of_step(train, step) == walk[static_cast<size_t>(step - 1)]);
      RC_ASSERT(sequences_before_step(train, step) == before);
      before += walk[static_cast<size_t>(step - 1)];
    }
  }));
}

}  // namespace
}  // namespace lockstep::config
