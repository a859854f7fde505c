#include "facts/power_waveform.hpp"

#include <gtest/gtest.h>

#include <stdexcept>

#include "cost/power.hpp"
#include "facts/basis.hpp"

namespace lockstep::facts {
namespace {

using observe::Stream;

config::ClusterConfig watts() {
  config::ClusterConfig cluster;
  cluster.gpu_compute_watts = 700;
  cluster.gpu_communication_watts = 300;
  cluster.gpu_idle_watts = 100;
  return cluster;
}

observe::Span span(Stream stream, double start_ms, double end_ms) {
  observe::Span out;
  out.stream = stream;
  out.start_ns = static_cast<int64_t>(start_ms * 1e6);
  out.end_ns = static_cast<int64_t>(end_ms * 1e6);
  return out;
}

observe::SpanFile rank(std::vector<observe::Span> spans) { return {0, 0, {"op"}, std::move(spans)}; }

TEST(Waveform, AGpuDrawsWhatItDoesAndKernelsComeFirst) {
  // 0-2 ms kernel; 1-3 ms a collective beside it and beyond; a wait, which draws nothing of its own, to 4;
  // 4-4.5 a message.
  const auto file = rank({span(Stream::compute, 0, 2), span(Stream::dp, 1, 3), span(Stream::exposed, 2, 4),
                          span(Stream::pp, 4, 4.5), span(Stream::host, 3, 5)});
  const PowerWaveform w = power_waveform(watts(), {file}, 1000, 5e-3, 1e-3);
  ASSERT_EQ(w.watts.size(), 5u);
  EXPECT_NEAR(w.watts[0], 700e3, 1e-3);
  EXPECT_NEAR(w.watts[1], 700e3, 1e-3);
  EXPECT_NEAR(w.watts[2], 300e3, 1e-3);
  EXPECT_NEAR(w.watts[3], 100e3, 1e-3);
  EXPECT_NEAR(w.watts[4], 200e3, 1e-3) << "half of the bin communicating, half waiting";
  EXPECT_NEAR(w.swing(), 600e3, 1e-3);
  EXPECT_NEAR(w.mean(5e-3), 400e3, 1e-3);
  EXPECT_NEAR(w.largest_change(1e-3), 400e3, 1e-3) << "from 700 to 300";
  EXPECT_NEAR(w.largest_change(2e-3), 600e3, 1e-3) << "from 700 to 100";
}

TEST(Waveform, OverlappingSpansCountOnceAndRanksEqually) {
  const auto busy = rank({span(Stream::compute, 0, 3), span(Stream::compute, 1, 2), span(Stream::tp, 0, 3)});
  const auto idle = rank({});
  const PowerWaveform w = power_waveform(watts(), {busy, idle}, 10, 2.5e-3, 1e-3);
  ASSERT_EQ(w.watts.size(), 3u);
  for (const double value : w.watts) EXPECT_NEAR(value, 5 * 700 + 5 * 100, 1e-6);
  EXPECT_NEAR(w.mean(2.5e-3), 4000, 1e-6) << "the last bin is shorter";
}

// Two ways from the same step: spans of a few ranks, and the split, a mean over all.
TEST(Waveform, ItsMeanIsNearThePowerByTheStepsSplit) {
  const Basis basis;
  const double by_spans = basis.waveform().mean(basis.step().seconds);
  const std::optional<cost::Power> by_split = cost::power_of(basis.run(), basis.step().split);
  ASSERT_TRUE(by_split.has_value());
  EXPECT_NEAR(by_spans / by_split->gpus, 1, 0.05);
}

TEST(Waveform, RefusesNothingToGoBy) {
  EXPECT_THROW(power_waveform(watts(), {}, 1, 1, 1e-3), std::invalid_argument);
  EXPECT_THROW(power_waveform(watts(), {rank({})}, 1, 0, 1e-3), std::invalid_argument);
}

}  // namespace
}  // namespace lockstep::facts
