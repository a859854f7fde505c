// A rank that fails inside a step, with operations under way: its peers learn of it at once.
#include <gtest/gtest.h>

#include <chrono>

#include "base/error.hpp"
#include "train/harness.hpp"

namespace lockstep::tests {
namespace {

using parallel::Action;
using parallel::ActionKind;

// Rank 0 issues a reduce-scatter that its dp peer never joins, then fails. The peer waits for a message of a
// rank that waits for the peer: nothing but rank 0's word ends that.
TEST(Failure, OfOneRankEndsThePeersWaitsAtOnce) {
  config::RunFile run = small_run({.pp = 2, .dp = 2, .sequence_parallel = false}, config::Dtype::fp32, 1);
  run.train.timeout_seconds = 120;
  const auto mutate = [](std::vector<parallel::Program>& programs, int rank) {
    if (rank == 0) {
      programs[0].actions = {
          {ActionKind::load_batch}, {ActionKind::reduce_gradients, 0}, {ActionKind::backward, 0, 0}};
      // A backward without a gradient to start from.
    } else if (rank == 2) {
      programs[0].actions = {
          {ActionKind::load_batch}, {ActionKind::receive_backward, 0, 0, 1, 0}, {ActionKind::backward, 0, 0}};
    }
  };
  const auto start = std::chrono::steady_clock::now();
  try {
    run_job(run, {.steps = 1, .mutate = mutate});
    FAIL() << "a program without its receive went through";
  } catch (const RunError& error) {
    EXPECT_NE(std::string(error.what()).find("without a receive_backward"), std::string::npos)
        << error.what();
  }
  EXPECT_LT(std::chrono::steady_clock::now() - start, std::chrono::seconds(30));
}

}  // namespace
}  // namespace lockstep::tests
