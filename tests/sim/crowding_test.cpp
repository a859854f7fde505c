// How long a collective takes beside what the program puts beside it, by hand.
#include "sim/crowding.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>

#include "parallel/drawn_run.hpp"
#include "sim/simulate_step.hpp"
#include "sim/small_runs.hpp"
#include "sim/stream_load.hpp"

namespace lockstep::sim {
namespace {

double end_of(const Crowding& crowding, double start, double seconds, double until) {
  std::vector<CrowdedPhase> phases;
  return crowded_end(crowding, 0, start, seconds, until, phases);
}

Crowding with_messages(double pace, std::vector<Crowding::Messages> messages) {
  Crowding c;
  c.pace = pace;
  c.messages = std::move(messages);
  return c;
}

TEST(Crowding, WithoutMessagesTheBlockingOnesCount) {
  EXPECT_DOUBLE_EQ(end_of(with_messages(1.5, {}), 10, 4, 0), 16);
}

TEST(Crowding, MessagesCountForAsLongAsTheyLast) {
  // Three seconds at a third of its pace, one of its four seconds done; the rest at 1.5.
  EXPECT_DOUBLE_EQ(end_of(with_messages(1.5, {{false, 3, 3}}), 10, 4, 20), 10 + 3 + 3 * 1.5);
  // One that was on its way until 16 comes on top: 9 seconds, three done.
  EXPECT_DOUBLE_EQ(end_of(with_messages(1.5, {{true, 3, 3}}), 10, 4, 16), 10 + 9 + 1 * 1.5);
  // They outlast it.
  EXPECT_DOUBLE_EQ(end_of(with_messages(1.5, {{true, 3, 3}}), 10, 4, 100), 10 + 12);
}

TEST(Crowding, TheWorstMessagesComeFirst) {
  const Crowding both = with_messages(1, {{false, 2, 4}, {false, 4, 8}});
  EXPECT_DOUBLE_EQ(end_of(both, 0, 4, 0), 8 + 4);  // half of it, and the other half
  EXPECT_DOUBLE_EQ(end_of(both, 0, 2, 0), 8);      // all of it
}

TEST(Crowding, TwoStreamsAtOnceHaveAPaceOfTheirOwn) {
  // Both until 6, at 3: two done; the later one until 8, at 2: one done; the last alone.
  EXPECT_DOUBLE_EQ(end_beside_two(0, 4, 3, {1.8, 6}, {2, 8}), 9);
  EXPECT_DOUBLE_EQ(end_beside_two(0, 4, 3, {2, 8}, {1.8, 6}), 9);
  EXPECT_DOUBLE_EQ(end_beside_two(0, 2, 3, {1.8, 6}, {2, 8}), 6);
}

// Nothing that takes longer, lasts longer or begins later makes it end earlier.
TEST(Crowding, NothingWorseMakesItEndEarlier) {
  std::mt19937 engine(5);
  const auto drawn = [&](double from, double to) {
    return std::uniform_real_distribution<double>(from, to)(engine);
  };
  for (int round = 0; round < 20000; ++round) {
    const double pace = drawn(1, 2), more = drawn(0, 0.5);
    const double a = pace + drawn(0, 2), b = pace + drawn(0, 2), seconds_a = drawn(0, 5),
                 seconds_b = drawn(0, 5);
    const double until = drawn(0, 5), seconds = drawn(0.1, 5), start = drawn(0, 3);
    const Crowding crowding = with_messages(pace, {{true, a, seconds_a}, {false, b, seconds_b}});
    const Crowding worse =
        with_messages(std::min(pace + more, std::min(a, b)),
                      {{true, a + more, seconds_a + drawn(0, 1)}, {false, b + drawn(0, 1), seconds_b}});
    EXPECT_LE(end_of(crowding, start, seconds, until),
              end_of(worse, start + drawn(0, 1), seconds + drawn(0, 1), until + drawn(0, 1)) * (1 + 1e-12));
  }
}

// Tensor-parallel collectives, messages and reductions on one NIC a GPU, above racks that are as thin as two
// of them together: what the three cost at once does not depend on whether two already do.
TEST(Crowding, ThreeCountWhereTwoDoNot) {
  config::RunFile run = tests::sample_run(2, 2, 2, 1, 4);
  run.parallel.zero = 2;
  run.parallel.gradient_scatter = config::GradientScatter::micro_batch;
  run.model.layers = 2;
  run.train.sequence = 512;
  run.cluster = tests::small_cluster(1, 8);
  run.cluster.gpus_per_rack = 4;
  run.cluster.collective_algorithm = config::CollectiveAlgorithm::ring;
  run.cluster.low_latency_protocols = false;
  run.cluster.nic_bandwidth = 1e8;
  double before = 0;
  for (const double oversubscription : {1.0, 1.5, 1.9, 1.999, 2.0, 2.001, 2.1, 3.0}) {
    run.cluster.rack_oversubscription = oversubscription;
    const double seconds = test::simulate(run, test::no_jitter()).seconds;
    EXPECT_GE(seconds, before * (1 - 1e-12)) << oversubscription;
    before = seconds;
  }
}

}  // namespace
}  // namespace lockstep::sim
