// Means of a run's summary: which steps count, and what is called hidden.
#include "cli/run_means.hpp"

#include <gtest/gtest.h>

#include <cmath>

namespace lockstep::cli {
namespace {

// Of two ranks; `exposed` and `under_way` of pp, by rank.
AssembledStep step(int64_t number, double seconds, double mfu, std::pair<double, double> exposed = {},
                   std::pair<double, double> under_way = {}) {
  AssembledStep out;
  out.record.step = number;
  out.record.seconds = seconds;
  out.record.mfu = mfu;
  out.record.mfu_causal = mfu / 2;
  out.record.tokens_per_second = 100 / seconds;
  out.ranks = {{0, number, {{.pp = exposed.first}, {.pp = under_way.first}}},
               {1, number, {{.pp = exposed.second}, {.pp = under_way.second}}}};
  out.record.waits = observe::mean_waits({out.ranks[0].waits, out.ranks[1].waits});
  return out;
}

TEST(RunMeans, AreEmptyWithoutASteadyStep) {
  RunMeans means;
  for (int64_t number = 1; number <= 3; ++number) means.add(step(number, 1, 0.5, {1, 1}, {1, 1}));
  EXPECT_EQ(means.text("PEAK"), "");
  EXPECT_TRUE(std::isnan(means.tokens_per_second()));
}

TEST(RunMeans, LeaveTheFirstStepsOutAndWeighMfuByTime) {
  RunMeans means;
  means.add(step(3, 100, 0.9));
  means.add(step(4, 1, 0.4));
  means.add(step(5, 3, 0.2));
  EXPECT_EQ(means.text("PEAK"),
            "mfu 25.0% with attention counted as full, 12.5% as causal, of PEAK; after step 3\n")
      << "a single rank, or ranks that waited for nothing: no line of what was exposed";
  means.add(step(6, 2, 0.25));
  EXPECT_EQ(means.tokens_per_second(), 50);
}

// A skipped step runs twice, its loss is NaN and it trained nothing: none of its figures is a mean's.
TEST(RunMeans, LeaveSkippedStepsOut) {
  RunMeans means;
  means.add(step(4, 2, 0.25, {0.5, 0.5}, {1, 1}));
  const std::string without = means.text("PEAK");
  EXPECT_NE(without.find("exposed 25% (pp 25)"), std::string::npos) << without;
  AssembledStep skipped = step(5, 200, 0.001, {150, 150}, {150, 150});
  skipped.record.skipped = true;
  means.add(skipped);
  EXPECT_EQ(means.tokens_per_second(), 50);
  EXPECT_EQ(means.over(), "after step 3, 1 skipped step left out");
  std::string with = means.text("PEAK");
  for (size_t at; (at = with.find(", 1 skipped step left out")) != std::string::npos;) with.erase(at, 25);
  EXPECT_EQ(with, without);
}

// Capped rank by rank and step by step: waits that took longer than the communication do not eat up what
// others hid.
TEST(RunMeans, HiddenIsCappedForEveryRankAndStep) {
  RunMeans means;
  means.add(step(4, 4, 0.5, {3, 0}, {1, 1}));  // 0 and 1 hidden
  means.add(step(5, 4, 0.5, {1, 2}, {4, 2}));  // 3 and 0
  EXPECT_EQ(
      means.text("PEAK"),
      "mfu 50.0% with attention counted as full, 25.0% as causal, of PEAK; after step 3\n"
      "exposed 38% (pp 38) of a step, mean over ranks, after step 3; hidden beside compute: pp 50% of the "
      "time under way\n");
}

TEST(RunMeans, SayNothingOfWhatWasNeverUnderWay) {
  RunMeans means;
  means.add(step(4, 4, 0.5, {1, 1}, {0, 0}));
  EXPECT_EQ(means.text("PEAK").find("hidden"), std::string::npos);
}

// A step of which some rank's waits never came has an MFU, but nothing is known of what it waited for.
TEST(RunMeans, ExposedSharesAreOfStepsWhoseWaitsAllCame) {
  RunMeans means;
  means.add(step(4, 4, 0.5, {1, 1}, {2, 2}));
  AssembledStep partial = step(5, 4, 0.25, {4, 4}, {4, 4});
  partial.record.waits.reset();
  partial.ranks.pop_back();
  means.add(partial);
  const std::string text = means.text("PEAK");
  EXPECT_EQ(text.find("mfu 37.5% "), 0u) << text;
  EXPECT_NE(text.find("exposed 25% (pp 25)"), std::string::npos) << text;
  EXPECT_NE(text.find("pp 50% of"), std::string::npos) << text;
}

}  // namespace
}  // namespace lockstep::cli
