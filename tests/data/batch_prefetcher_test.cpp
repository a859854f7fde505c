// Prefetched batches are the samples they should be; the helper thread sleeps, fails and ends as it should.
#include "data/batch_prefetcher.hpp"

#include <gtest/gtest.h>
#include <time.h>

#include <algorithm>
#include <atomic>
#include <chrono>

#include "base/error.hpp"

namespace lockstep::data {
namespace {

// Every token of sample i is i, every target i + 1.
void fill_with_index(int64_t sample, const SequenceSpans& spans) {
  std::fill(spans.inputs.begin(), spans.inputs.end(), sample);
  std::fill(spans.targets.begin(), spans.targets.end(), sample + 1);
}

// One worker's run: steps of `batch` sequences in micro-batches of `micro_batch`.
config::RunFile run_of(int64_t batch, int64_t micro_batch, int64_t sequence) {
  config::RunFile run;
  run.train.global_batch = batch;
  run.train.sequence = sequence;
  run.parallel.micro_batch = micro_batch;
  return run;
}

TEST(BatchPrefetcher, GivesTheStepsInOrder) {
  config::RunFile run = run_of(12, 2, 3);
  run.parallel.dp = 2;
  run.train.batch_ramp = {"4:1"};
  for (int64_t dp = 0; dp < 2; ++dp) {
    BatchPrefetcher prefetcher(fill_with_index, run, {dp, 0}, 0, 4);
    for (int64_t step = 0; step < 4; ++step) {
      const StepBatch got = prefetcher.next();
      const StepBatch expected = make_step_batch(fill_with_index, run, {dp, 0}, step);
      EXPECT_EQ(got.step, step);
      EXPECT_EQ(got.trained_tokens, step == 0 ? 6 : 18);
      ASSERT_EQ(got.micro_batches.size(), step == 0 ? 1u : 3u);
      ASSERT_EQ(expected.micro_batches.size(), got.micro_batches.size());
      for (size_t i = 0; i < got.micro_batches.size(); ++i) {
        const int64_t sample = (step == 0 ? 0 : 4 + (step - 1) * 12) + dp * (step == 0 ? 2 : 6);
        EXPECT_EQ(got.micro_batches[i].inputs[0], sample + static_cast<int64_t>(i) * 2);
        EXPECT_EQ(got.micro_batches[i].inputs, expected.micro_batches[i].inputs);
        EXPECT_EQ(got.micro_batches[i].targets, expected.micro_batches[i].targets);
      }
    }
  }
}

TEST(BatchPrefetcher, WorksAheadByOneStepAndThenSleeps) {
  std::atomic<int> made = 0;
  clockid_t helper_clock{};
  std::atomic<bool> have_clock = false;
  const SampleFill fill = [&](int64_t sample, const SequenceSpans& spans) {
    if (!have_clock) {
      pthread_getcpuclockid(pthread_self(), &helper_clock);
      have_clock = true;
    }
    fill_with_index(sample, spans);
    ++made;
  };
  BatchPrefetcher prefetcher(fill, run_of(1, 1, 8), {}, 0, 1000);
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
  const SampleFill fill = [](int64_t sample, const SequenceSpans& spans) {
    if (sample == 4) throw RunError("the disk went away");
    fill_with_index(sample, spans);
  };
  BatchPrefetcher prefetcher(fill, run_of(2, 2, 1), {}, 0, 10);
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
      BatchPrefetcher prefetcher(fill_with_index, run_of(2, 1, 16), {}, 0, 4);
      for (int i = 0; i < std::min(taken, 4); ++i) EXPECT_EQ(prefetcher.next().step, i);
      if (taken == 4) {
        EXPECT_THROW(prefetcher.next(), RunError);
      }
    }
  }
  BatchPrefetcher none(fill_with_index, run_of(2, 1, 16), {}, 3, 3);
  EXPECT_THROW(none.next(), RunError);
}

TEST(BatchPrefetcher, RefusesWhatCannotBeCutAtOnce) {
  EXPECT_THROW(BatchPrefetcher(fill_with_index, run_of(3, 2, 8), {}, 0, 1), UsageError);
  EXPECT_THROW(BatchPrefetcher(fill_with_index, run_of(2, 2, 8), {1, 0}, 0, 1), RunError);
}

}  // namespace
}  // namespace lockstep::data
