// simulate.seed deals flows to uplinks, whichever way it is given.
#include <gtest/gtest.h>

#include "sim/small_runs.hpp"

namespace lockstep::sim {
namespace {

double seconds(int64_t of_file, int64_t of_options) {
  config::RunFile run = test::small_run(8, 1, 2, 1, 1);
  run.cluster.gpus_per_rack = 8;
  run.cluster.rack_uplinks = 8;
  run.simulate.seed = of_file;
  StepOptions options = test::no_jitter();
  options.seed = of_options;
  return test::simulate(run, options).seconds;
}

TEST(UplinkSeed, TheOptionsSeedIsTheOneOfTheHash) {
  int64_t other = 2;
  while (other < 50 && seconds(other, other) == seconds(1, 1)) ++other;
  EXPECT_NE(seconds(other, other), seconds(1, 1));
  EXPECT_EQ(seconds(1, other), seconds(other, other));
  EXPECT_EQ(seconds(other, 1), seconds(1, 1));
}

}  // namespace
}  // namespace lockstep::sim
