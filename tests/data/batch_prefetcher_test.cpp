// Prefetched batches are the samples they should be; the helper thread sleeps, fails and ends as it should.
#include "data/batch_prefetcher.hpp"

#include <gtest/gtest.h>
#include <rapidcheck.h>
#include <time.h>

#include <atomic>
#include <chrono>
#include <numeric>
#include <set>

#include "base/error.hpp"
#include "data/sampler.hpp"

namespace lockstep::data {
namespace {

// Every token of sample i is i, every target -i.
void fill_with_index(int64_t first, int64_t n, std::span<int64_t> inputs, std::span<int64_t> targets) {
  const size_t length = inputs.size() / static_cast<size_t>(n);
  for (size_t i = 0; i < inputs.size(); ++i) {
    inputs[i] = first + static_cast<int64_t>(i / length);
    targets[i] = -inputs[i];
  }
}

TEST(BatchPrefetcher, ReplicasTakeConsecutiveSharesInOrder) {
  std::vector<int64_t> step_two;
  for (int replica = 0; replica < 2; ++replica) {
    const BatchCut cut{
        .global_batch = 12, .micro_batch = 2, .sequence = 3, .replica = replica, .replicas = 2};
    BatchPrefetcher prefetcher(fill_with_index, cut, 1, 3);
    EXPECT_EQ(prefetcher.next().step, 1);
    const StepBatch batch = prefetcher.next();
    EXPECT_EQ(batch.step, 2);
    ASSERT_EQ(batch.micro_batches.size(), 3u);
    for (const MicroBatch& micro_batch : batch.micro_batches) {
      ASSERT_EQ(micro_batch.inputs.size(), 6u);
      ASSERT_EQ(micro_batch.targets.size(), 6u);
      step_two.insert(step_two.end(), {micro_batch.inputs[0], micro_batch.inputs[3]});
      EXPECT_EQ(micro_batch.targets[5], -micro_batch.inputs[5]);
    }
  }
  EXPECT_EQ(step_two, (std::vector<int64_t>{24, 25, 26, 27, 28, 29, 30, 31, 32, 33, 34, 35}));
}

TEST(BatchPrefetcher, AnyLayoutReadsTheSameBatch) {
  TokenStream stream;
  stream.tokens.resize(4001);
  std::iota(stream.tokens.begin(), stream.tokens.end(), 0);
  const Sampler sampler(stream, 4, 1);
  const SampleFill fill = [&](int64_t first, int64_t n, std::span<int64_t> inputs,
                              std::span<int64_t> targets) { sampler.fill(first, n, inputs, targets); };
  EXPECT_TRUE(rc::check("shares of all replicas join to the global batch", [&] {
    const int replicas = *rc::gen::inRange(1, 5);
    const int64_t micro_batch = *rc::gen::inRange<int64_t>(1, 4);
    const int64_t count = *rc::gen::inRange<int64_t>(1, 4);
    const int64_t global_batch = replicas * micro_batch * count;
    const int64_t first_step = *rc::gen::inRange<int64_t>(0, 100);
    std::vector<std::vector<int64_t>> got(3);
    for (int replica = 0; replica < replicas; ++replica) {
      BatchPrefetcher prefetcher(fill, {global_batch, micro_batch, 4, replica, replicas}, first_step,
                                 first_step + 3);
      for (std::vector<int64_t>& step : got) {
        for (const MicroBatch& m : prefetcher.next().micro_batches)
          step.insert(step.end(), m.inputs.begin(), m.inputs.end());
      }
    }
    for (int64_t s = 0; s < 3; ++s) {
      std::vector<int64_t> inputs(static_cast<size_t>(global_batch * 4)), targets(inputs.size());
      sampler.fill((first_step + s) * global_batch, global_batch, inputs, targets);
      RC_ASSERT(got[static_cast<size_t>(s)] == inputs);
    }
  }));
}

TEST(BatchPrefetcher, WorksAheadByOneStepAndThenSleeps) {
  std::atomic<int> made = 0;
  clockid_t helper_clock{};
  std::atomic<bool> have_clock = false;
  const SampleFill fill = [&](int64_t first, int64_t n, std::span<int64_t> inputs,
                              std::span<int64_t> targets) {
    if (!have_clock) {
      pthread_getcpuclockid(pthread_self(), &helper_clock);
      have_clock = true;
    }
    fill_with_index(first, n, inputs, targets);
    ++made;
  };
  BatchPrefetcher prefetcher(fill, {1, 1, 8, 0, 1}, 0, 1000);
  prefetcher.next();
  const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(20);
  while (made < 2 && std::chrono::steady_clock::now() < deadline) std::this_thread::yield();
  EXPECT_EQ(made, 2);
  timespec before{}, after{};
  std::this_thread::sleep_for(std::chrono::milliseconds(20));
  clock_gettime(helper_clock, &before);
  std::this_thread::sleep_for(std::chrono::milliseconds(200));
  clock_gettime(helper_clock, &after);
  EXPECT_EQ(made, 2);  // one step ready, no more
  const double busy = static_cast<double>(after.tv_sec - before.tv_sec) +
                      1e-9 * static_cast<double>(after.tv_nsec - before.tv_nsec);
  EXPECT_LT(busy, 0.01);  // of 0.2 s
}

TEST(BatchPrefetcher, ErrorsReachTheConsumerAtTheirStep) {
  const SampleFill fill = [](int64_t first, int64_t n, std::span<int64_t> inputs,
                             std::span<int64_t> targets) {
    if (first == 4) throw RunError("the disk went away");
    fill_with_index(first, n, inputs, targets);
  };
  BatchPrefetcher prefetcher(fill, {2, 2, 1, 0, 1}, 0, 10);
  EXPECT_EQ(prefetcher.next().step, 0);
  EXPECT_EQ(prefetcher.next().step, 1);
  for (int again = 0; again < 2; ++again) {
    try {
      prefetcher.next();
      FAIL() << "step 2 came";
    } catch (const RunError& error) {
      EXPECT_STREQ(error.what(), "the disk went away");
    }
  }
}

TEST(BatchPrefetcher, EndsAtAnyMoment) {
  for (int taken = 0; taken < 5; ++taken) {
    for (int round = 0; round < 20; ++round) {
      BatchPrefetcher prefetcher(fill_with_index, {2, 1, 16, 0, 1}, 0, 4);
      for (int i = 0; i < std::min(taken, 4); ++i) EXPECT_EQ(prefetcher.next().step, i);
      if (taken == 4) {
        EXPECT_THROW(prefetcher.next(), RunError);
      }
    }
  }
  BatchPrefetcher none(fill_with_index, {2, 1, 16, 0, 1}, 3, 3);
  EXPECT_THROW(none.next(), RunError);
}

TEST(BatchPrefetcher, CutsThatDoNotDivideAreRefused) {
  const auto message = [](const BatchCut& cut) -> std::string {
    try {
      BatchPrefetcher prefetcher(fill_with_index, cut, 0, 1);
    } catch (const UsageError& error) {
      return error.what();
    }
    return "";
  };
  EXPECT_NE(message({16, 3, 8, 0, 2}).find("the nearest is 18"), std::string::npos)
      << message({16, 3, 8, 0, 2});
  EXPECT_NE(message({1, 1, 8, 0, 4}).find("the nearest is 4"), std::string::npos);
  EXPECT_NE(message({16, 1, 8, 2, 2}), "");
  EXPECT_NE(message({16, 1, 8, -1, 2}), "");
  EXPECT_NE(message({16, 0, 8, 0, 2}), "");
  EXPECT_NE(message({16, 1, 0, 0, 2}), "");
  EXPECT_EQ(message({16, 4, 8, 1, 2}), "");
}

}  // namespace
}  // namespace lockstep::data
