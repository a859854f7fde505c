// Every sample of a step once over all workers, whole again when put together, masked at documents' borders.
#include "data/micro_batch.hpp"

#include <gtest/gtest.h>
#include <rapidcheck.h>

#include <map>
#include <string>

#include "base/error.hpp"
#include "support.hpp"

namespace lockstep::data {
namespace {

using tests::drawn_stream;
using tests::slow_window;
using tests::WholeSequence;

config::RunFile small_run(int64_t sequence, int64_t cp, int64_t dp, int64_t replicas, int64_t micro_batch) {
  config::RunFile run;
  run.train.sequence = sequence;
  run.train.global_batch = replicas * micro_batch;
  run.parallel.cp = cp;
  run.parallel.dp = dp;
  run.parallel.replicas = replicas;
  run.parallel.micro_batch = micro_batch;
  return run;
}

config::RunFile drawn_run() {
  const int64_t cp = *rc::gen::inRange<int64_t>(1, 5), dp = *rc::gen::inRange<int64_t>(1, 5);
  const int64_t replicas = *rc::gen::inRange<int64_t>(dp, 10);
  config::RunFile run = small_run(2 * cp * *rc::gen::inRange<int64_t>(1, 5), cp, dp, replicas,
                                  *rc::gen::inRange<int64_t>(1, 4));
  run.parallel.gradient_scatter =
      *rc::gen::element(config::GradientScatter::chunk, config::GradientScatter::micro_batch);
  run.data.document_mask = *rc::gen::arbitrary<bool>();
  const int64_t unit = run.train.global_batch;
  run.train.global_batch = unit * 3;
  const int64_t first_end = *rc::gen::inRange<int64_t>(1, 3);
  if (*rc::gen::arbitrary<bool>())
    run.train.batch_ramp.push_back(std::to_string(unit) + ":" + std::to_string(first_end));
  if (*rc::gen::arbitrary<bool>())
    run.train.batch_ramp.push_back(std::to_string(unit * 2) + ":" + std::to_string(first_end + 2));
  return run;
}

// Sequences of a step, walked through the ramp's text by hand.
int64_t slow_batch(const config::TrainConfig& train, int64_t step) {
  for (const std::string& entry : train.batch_ramp) {
    const size_t colon = entry.find(':');
    if (step < std::stoll(entry.substr(colon + 1))) return std::stoll(entry.substr(0, colon));
  }
  return train.global_batch;
}

// Puts one micro-batch's rows of context-parallel rank `rank` back to their places in whole sequences.
void join_rows(const config::RunFile& run, const MicroBatch& batch, int64_t rank,
               std::vector<WholeSequence>& rows) {
  const int64_t sequence = run.train.sequence, cp = run.parallel.cp, local = sequence / cp;
  const auto put = [&](const std::vector<int64_t>& part, int64_t row, std::vector<int64_t>& whole) {
    whole.resize(static_cast<size_t>(sequence), INT64_MIN);
    for (int64_t i = 0; i < local; ++i) {
      const int64_t half = i / (local / 2), within = i % (local / 2);
      const int64_t chunk = half == 0 ? rank : 2 * cp - 1 - rank;
      int64_t& place = whole[static_cast<size_t>(chunk * (local / 2) + within)];
      RC_ASSERT(place == INT64_MIN);
      place = part[static_cast<size_t>(row * local + i)];
    }
  };
  const auto tokens = static_cast<size_t>(run.parallel.micro_batch * local);
  RC_ASSERT(batch.inputs.size() == tokens);
  RC_ASSERT(batch.targets.size() == tokens);
  RC_ASSERT(batch.document_starts.size() == (run.data.document_mask ? tokens : 0));
  rows.resize(static_cast<size_t>(run.parallel.micro_batch));
  for (int64_t row = 0; row < run.parallel.micro_batch; ++row) {
    WholeSequence& whole = rows[static_cast<size_t>(row)];
    put(batch.inputs, row, whole.inputs);
    put(batch.targets, row, whole.targets);
    if (run.data.document_mask) put(batch.document_starts, row, whole.document_starts);
  }
}

WholeSequence blank(const config::RunFile& run) {
  const auto length = static_cast<size_t>(run.train.sequence);
  return {std::vector<int64_t>(length, 0), std::vector<int64_t>(length, -1),
          std::vector<int64_t>(run.data.document_mask ? length : 0, 0)};
}

// What all workers made of step `step`: by replica and its micro-batch, the rows, each whole again.
using Joined = std::map<std::pair<int64_t, int64_t>, std::vector<WholeSequence>>;

Joined join_step(const config::RunFile& run, const Sampler& sampler, int64_t step) {
  const SampleFill fill = [&](int64_t sample, const SequenceSpans& spans) { sampler.fill(sample, spans); };
  const config::ParallelConfig& p = run.parallel;
  const int64_t rounds = (p.replicas + p.dp - 1) / p.dp;
  const int64_t each = slow_batch(run.train, step) / (p.replicas * p.micro_batch);
  Joined joined;
  for (int64_t dp = 0; dp < p.dp; ++dp) {
    for (int64_t cp = 0; cp < p.cp; ++cp) {
      const StepBatch batch = make_step_batch(fill, run, {dp, cp}, step);
      RC_ASSERT(batch.step == step);
      RC_ASSERT(batch.micro_batches.size() == static_cast<size_t>(rounds * each));
      int64_t trained = 0, sum = 0, index = 0;
      const auto take = [&](int64_t round, int64_t m) {
        const MicroBatch& micro_batch = batch.micro_batches[static_cast<size_t>(index++)];
        for (const int64_t target : micro_batch.targets) trained += target == -1 ? 0 : 1;
        sum += trained_tokens(micro_batch);
        join_rows(run, micro_batch, cp, joined[{round * p.dp + dp, m}]);
      };
      if (p.gradient_scatter == config::GradientScatter::chunk) {
        for (int64_t round = 0; round < rounds; ++round)
          for (int64_t m = 0; m < each; ++m) take(round, m);
      } else {
        for (int64_t m = 0; m < each; ++m)
          for (int64_t round = 0; round < rounds; ++round) take(round, m);
      }
      RC_ASSERT(batch.trained_tokens == trained);
      RC_ASSERT(sum == trained);
    }
  }
  return joined;
}

TEST(MicroBatch, AllWorkersTogetherHoldTheStepsSamplesOnce) {
  EXPECT_TRUE(rc::check("over context parallel, replicas, rounds, orders, ramps and masks", [] {
    const config::RunFile run = drawn_run();
    const int64_t sequence = run.train.sequence;
    const TokenStream stream = drawn_stream(sequence * *rc::gen::inRange<int64_t>(1, 40) + 1, sequence);
    const Sampler sampler(stream, sequence, 5);
    int64_t sample = 0;
    for (int64_t step = 0; step < 6; ++step) {
      const Joined joined = join_step(run, sampler, step);
      const int64_t end = sample + slow_batch(run.train, step);
      for (const auto& [place, rows] : joined) {  // ascending: replica after replica, each in order
        for (const WholeSequence& row : rows) {
          if (place.first >= run.parallel.replicas) {
            RC_ASSERT(row == blank(run));
          } else {
            const int64_t window = sampler.place(sample++).window;
            RC_ASSERT(row == slow_window(stream, sequence, window, run.data.document_mask));
          }
        }
      }
      RC_ASSERT(sample == end);
    }
  }));
}

TEST(MicroBatch, TrainedTokensOfAllWorkersAreTheSame) {
  // Four replicas, whichever dp and cp: the divisor of the loss may not depend on them.
  const TokenStream stream = [] {
    TokenStream s = tests::counting_stream(16 * 20 + 1);
    s.document_begins = {0, 5, 16, 33, 48, 49, 200};
    return s;
  }();
  const Sampler sampler(stream, 16, 1);
  const SampleFill fill = [&](int64_t sample, const SequenceSpans& spans) { sampler.fill(sample, spans); };
  for (const bool masked : {false, true}) {
    for (const int64_t dp : {1, 2, 3, 4}) {
      for (const int64_t cp : {1, 2, 4}) {
        config::RunFile run = small_run(16, cp, dp, 4, 1);
        run.train.global_batch = 20;  // every window once
        run.data.document_mask = masked;
        int64_t trained = 0;
        for (int64_t d = 0; d < dp; ++d) {
          for (int64_t c = 0; c < cp; ++c) trained += make_step_batch(fill, run, {d, c}, 0).trained_tokens;
        }
        EXPECT_EQ(trained, 16 * 20 - (masked ? 6 : 0));
      }
    }
  }
}

TEST(HeldOut, WindowsInOrderThenBlankPlaces) {
  EXPECT_TRUE(rc::check("over context parallel and masks", [] {
    const config::RunFile run = drawn_run();
    const int64_t sequence = run.train.sequence;
    const int64_t count = *rc::gen::inRange<int64_t>(1, 10);
    const TokenStream stream = drawn_stream(sequence * count + 1, sequence);
    const Windows windows(stream, sequence);
    const int64_t first = *rc::gen::inRange<int64_t>(0, 14), end = *rc::gen::inRange<int64_t>(0, count + 1);
    std::vector<WholeSequence> rows;
    for (int64_t cp = 0; cp < run.parallel.cp; ++cp)
      join_rows(run, held_out_micro_batch(windows, run, cp, first, end), cp, rows);
    for (int64_t row = 0; row < run.parallel.micro_batch; ++row) {
      const int64_t window = first + row;
      RC_ASSERT(rows[static_cast<size_t>(row)] ==
                (window < end ? slow_window(stream, sequence, window, run.data.document_mask) : blank(run)));
    }
  }));
}

TEST(MicroBatch, CutsThatDoNotDivideAreRefused) {
  const auto message = [](const config::RunFile& run, DataRank rank) -> std::string {
    try {
      check_cut(run, rank);
    } catch (const UsageError& error) {
      return error.what();
    }
    return "";
  };
  config::RunFile run = small_run(8, 2, 2, 3, 2);
  EXPECT_EQ(message(run, {1, 1}), "");
  run.train.global_batch = 16;
  EXPECT_NE(message(run, {0, 0}).find("the nearest is 18"), std::string::npos) << message(run, {0, 0});
  run.train.global_batch = 1;
  EXPECT_NE(message(run, {0, 0}).find("the nearest is 6"), std::string::npos) << message(run, {0, 0});
  run.train.global_batch = 12;
  run.train.batch_ramp = {"8:3"};
  EXPECT_NE(message(run, {0, 0}).find("a step of 8 sequences"), std::string::npos) << message(run, {0, 0});
  EXPECT_NE(message(small_run(6, 2, 1, 1, 1), {0, 0}).find("multiple of 2 x parallel.cp = 4"),
            std::string::npos);
  EXPECT_EQ(message(small_run(7, 1, 1, 1, 1), {0, 0}), "");  // one rank holds whole sequences
  EXPECT_NE(message(small_run(0, 1, 1, 1, 1), {0, 0}), "");
  EXPECT_NE(message(small_run(8, 1, 1, 1, 0), {0, 0}), "");
  EXPECT_NE(message(small_run(8, 1, 3, 2, 1), {0, 0}), "");  // fewer replicas than ranks
  for (const DataRank rank : {DataRank{2, 0}, DataRank{-1, 0}, DataRank{0, 2}, DataRank{0, -1}})
    EXPECT_THROW(check_cut(small_run(8, 2, 2, 2, 1), rank), RunError);
}

}  // namespace
}  // namespace lockstep::data
