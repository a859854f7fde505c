// What holds for every run file: it is refused with a reason, or its step is a finite answer whose figures
// agree with each other and move the right way when the cluster gets better.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "base/error.hpp"
#include "cost/step_figures.hpp"
#include "parallel/program_check.hpp"
#include "sim/drawn_run_file.hpp"
#include "sim/small_runs.hpp"

namespace lockstep::sim {
namespace {

using namespace test;

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
constexpr int files_a_shard = 50;
#else
constexpr int files_a_shard = 1000;
#endif
constexpr int shards = 10;

constexpr double rounding = 1e-9;  // of the step: sums of many times

int64_t ops_of(const parallel::Layout& layout, const std::vector<parallel::Program>& programs) {
  int64_t ops = 0;
  for (const parallel::Program& program : programs) {
    for (const parallel::Action& action : program.actions) {
      ops += static_cast<int64_t>(parallel::action_ops(layout, program.stage, action).size());
    }
  }
  return ops * layout.mesh().size() / layout.stages();
}

// Half of a stage's ranks spend no more than its median, and the slowest rank is furthest beyond one.
std::string wrong_behind(const config::RunFile& run, const StepResult& r) {
  const double slack = rounding * r.seconds;
  const parallel::Mesh mesh(run);
  for (int rank = 0; rank < mesh.size(); ++rank) {
    const auto own = [&](int of) {
      return r.kernel_seconds[static_cast<size_t>(of)] + r.pause_seconds[static_cast<size_t>(of)];
    };
    const double median = own(rank) - r.behind_seconds[static_cast<size_t>(rank)];
    int no_more = 0, no_less = 0, ranks = 0;
    for (int other = 0; other < mesh.size(); ++other) {
      if (mesh.coordinates(other).pp != mesh.coordinates(rank).pp) continue;
      ++ranks;
      no_more += own(other) <= median + slack ? 1 : 0;
      no_less += own(other) >= median - slack ? 1 : 0;
    }
    if (2 * no_more < ranks || 2 * no_less < ranks) return fmt::format("rank {} is beside no median", rank);
    if (r.behind_seconds[static_cast<size_t>(rank)] > r.behind_seconds[static_cast<size_t>(r.slowest_rank)]) {
      return "slowest_rank";
    }
  }
  return "";
}

// What is wrong with a step's figures; empty: nothing.
std::string inconsistency(const config::RunFile& run, const StepResult& r) {
  const double slack = rounding * r.seconds;
  if (!(std::isfinite(r.seconds) && r.seconds > 0)) return "the step takes no finite time";
  if (r.ranks != run.parallel.world_size()) return "ranks";
  double sum = 0;
  for (const double part : r.split.values()) {
    if (!(part >= -slack)) return fmt::format("a part of the split is {}", part);
    sum += part;
  }
  if (!(std::abs(sum - r.seconds) <= slack))
    return fmt::format("the split sums to {}, not {}", sum, r.seconds);
  const auto last = std::max_element(r.finish_seconds.begin(), r.finish_seconds.end());
  if (*last != r.seconds) return "the last rank is not done when the step is";
  const auto busiest = std::max_element(r.kernel_seconds.begin(), r.kernel_seconds.end());
  if (!(*busiest <= r.seconds + slack)) return "a rank computes longer than the step";
  if (const std::string wrong = wrong_behind(run, r); !wrong.empty()) return wrong;
  for (size_t i = 0; i < r.kernel_seconds.size(); ++i) {
    // A stage may be left with no layer, and kernels may cost no launch.
    if (!(r.kernel_seconds[i] >= -slack && r.kernel_seconds[i] <= r.finish_seconds[i] + slack)) {
      return fmt::format("rank {} computes {} s and is done at {} s", i, r.kernel_seconds[i],
                         r.finish_seconds[i]);
    }
  }
  if (!(r.seconds_p50 > 0 && r.seconds_p50 <= r.seconds_p99 && r.seconds_p99 <= r.seconds))
    return "percentiles";
  if (!(r.bubble_fraction >= -rounding && r.bubble_fraction < 1)) {
    return fmt::format("bubble_fraction is {}", r.bubble_fraction);
  }
  for (const Phase& phase : r.phases) {
    if (!(phase.start >= 0 && phase.start <= phase.end && phase.end <= r.seconds + slack)) {
      return fmt::format("phase {} goes from {} to {}", phase.name, phase.start, phase.end);
    }
  }
  if (r.phases.size() != 5 || r.phases.back().end != r.seconds) return "phases";
  return "";
}

// One figure of the cluster made better, drawn.
config::ClusterConfig improved(config::ClusterConfig c, RunFileDrawer& draw) {
  const double factor = draw.chance(2) ? draw.over(1.0005, 1.2) : draw.over(1.01, 100);
  switch (draw.pick(0, 3)) {
    case 0:
      c.nvlink_bandwidth *= factor;
      break;
    case 1:
      c.nic_bandwidth *= factor;
      break;
    case 2:
      c.pod_oversubscription = std::max(1.0, c.pod_oversubscription / factor);
      break;
    default:
      c.rack_oversubscription = std::max(1.0, c.rack_oversubscription / factor);
  }
  return c;
}

struct Verdict {
  bool refused = false;
  std::string wrong;  // empty: nothing
};

std::string wrong_refusal(const std::vector<config::Problem>& problems) {
  for (const config::Problem& problem : problems) {
    const std::string text = to_string(problem);
    if (problem.key.empty() || problem.rule.empty()) return "a refusal without key or rule: " + text;
    if (text.find(problem.key) == text.npos || text.find(problem.rule) == text.npos) {
      return "a refusal that does not tell its key and rule: " + text;
    }
  }
  return "";
}

// More bandwidth of all links, or of some, never makes a step longer. But for the choice between ring and
// tree, which is made by what they take alone, and is kept away from slow links here.
std::string wrong_with_more_bandwidth(config::RunFile run, const std::vector<parallel::Program>& programs,
                                      StepOptions options, RunFileDrawer& draw) {
  if (!run.simulate.slow_links.empty()) {
    // Algorithms are chosen for a network that is well; the one that more bandwidth makes best there may be
    // the worse one on a slow link.
    run.cluster.collective_algorithm = config::CollectiveAlgorithm::ring;
    run.cluster.low_latency_protocols = false;
  }
  config::RunFile all = run, some = run;
  const double times = draw.over(1, 20);
  all.cluster.nvlink_bandwidth *= times;
  all.cluster.nic_bandwidth *= times;
  some.cluster = improved(run.cluster, draw);
  for (const bool contention : {true, false}) {
    options.contention = contention;
    const auto seconds = [&](const config::RunFile& of) {
      return simulate_step(parallel::Layout(of), programs, options).seconds;
    };
    const double before = seconds(run);
    for (const config::RunFile& faster : {all, some}) {
      const double after = seconds(faster);
      if (after <= before * (1 + rounding)) continue;
      const config::ClusterConfig& c = faster.cluster;
      return fmt::format("{} s, and {} s with nvlink {}, nic {}, pod 1:{}, rack 1:{}", before, after,
                         c.nvlink_bandwidth, c.nic_bandwidth, c.pod_oversubscription,
                         c.rack_oversubscription);
    }
  }
  return "";
}

// A slow link more never makes a step shorter.
std::string wrong_with_a_slow_link(const parallel::Layout& layout,
                                   const std::vector<parallel::Program>& programs, StepOptions options,
                                   RunFileDrawer& draw) {
  const config::SlowRank slow{static_cast<int>(draw.pick(0, layout.mesh().size() - 1)), draw.over(1.01, 100)};
  for (const bool contention : {true, false}) {
    options.contention = contention;
    const double before = simulate_step(layout, programs, options).seconds;
    StepOptions slower = options;
    slower.slow_links.push_back(slow);
    const double after = simulate_step(layout, programs, slower).seconds;
    if (after < before * (1 - rounding)) {
      return fmt::format("{} s, and {} s with rank {}'s link {} times slower, contention {}", before, after,
                         slow.rank, slow.factor, contention);
    }
  }
  return "";
}

std::string wrong_step(const config::RunFile& run, RunFileDrawer& draw) {
  const parallel::Layout layout(run);
  const auto programs = parallel::build_step_programs(layout);
  parallel::check_step_programs(layout, programs);
  const StepOptions options = step_options(run.simulate);
  const StepResult r = simulate_step(layout, programs, options);
  if (std::string wrong = inconsistency(run, r); !wrong.empty()) return wrong;
  if (r.ops != ops_of(layout, programs)) return "ops are not those of the programs";
  const double mfu = cost::step_figures(run, r.seconds, r.bubble_fraction, r.split).mfu_causal;
  if (!(mfu > 0 && mfu <= 1)) return fmt::format("mfu_causal is {}", mfu);

  StepOptions slower = options;
  slower.slow.push_back({static_cast<int>(draw.pick(0, r.ranks - 1)), draw.over(1.01, 10)});
  const double with_slow = simulate_step(layout, programs, slower).seconds;
  if (!(r.seconds <= with_slow * (1 + rounding))) {
    return fmt::format("{} s, and {} s with a slow rank {} more", r.seconds, with_slow,
                       slower.slow.back().rank);
  }
  if (std::string wrong = wrong_with_more_bandwidth(run, programs, options, draw); !wrong.empty()) {
    return wrong;
  }
  return wrong_with_a_slow_link(layout, programs, options, draw);
}

Verdict verdict(const std::vector<std::string>& overrides, unsigned seed) {
  RunFileDrawer draw(seed);
  try {
    const config::Examined examined = examine(overrides);
    if (!examined.problems.empty()) return {true, wrong_refusal(examined.problems)};
    return {false, wrong_step(examined.run, draw)};
  } catch (const UsageError& error) {
    return {true, std::string(error.what()).empty() ? "a refusal without a word" : ""};
  } catch (const std::exception& error) {
    return {false, std::string("threw ") + error.what()};
  }
}

// The fewest of the overrides that are still wrong.
std::vector<std::string> shrunk(std::vector<std::string> overrides, unsigned seed) {
  for (size_t i = 0; i < overrides.size();) {
    std::vector<std::string> fewer = overrides;
    fewer.erase(fewer.begin() + static_cast<std::ptrdiff_t>(i));
    if (verdict(fewer, seed).wrong.empty()) {
      ++i;
    } else {
      overrides = fewer;
    }
  }
  return overrides;
}

class AnyRunFile : public ::testing::TestWithParam<int> {};

TEST_P(AnyRunFile, IsRefusedWithAReasonOrSimulatedConsistently) {
  int simulated = 0, refused = 0, wrong = 0;
  for (int i = 0; i < files_a_shard && wrong < 3; ++i) {
    const auto seed = static_cast<unsigned>(GetParam() * 1'000'000 + i);
    const std::vector<std::string> overrides = RunFileDrawer(seed).draw();
    const Verdict found = verdict(overrides, seed);
    ++(found.refused ? refused : simulated);
    if (found.wrong.empty()) continue;
    ++wrong;
    const std::vector<std::string> least = shrunk(overrides, seed);
    ADD_FAILURE() << "seed " << seed << ": " << verdict(least, seed).wrong << "\n  "
                  << fmt::format("{}", fmt::join(least, "\n  "));
  }
  EXPECT_GT(simulated, files_a_shard / 2);
  EXPECT_GT(refused, files_a_shard / 50);
}

INSTANTIATE_TEST_SUITE_P(Shards, AnyRunFile, ::testing::Range(0, shards));

// The published bubbles, which hold for equal stages and free communication: over the whole (p-1)/(m+p-1) for
// GPipe (Huang et al., arXiv:1811.06965), over compute (p-1)/(V m) interleaved with m a multiple of p
// (Narayanan et al., arXiv:2104.04473). Stages here are equal but for the output matrix.
TEST(Properties, BubblesAreThePublishedOnes) {
  RunFileDrawer draw(5);
  for (int i = 0; i < 100; ++i) {
    const bool interleaved = draw.chance(2);
    const int64_t p = draw.pick(1, 8), chunks = interleaved ? draw.pick(1, 3) : 1;
    const int64_t m = interleaved ? p * draw.pick(1, 4) : draw.pick(1, 30);
    config::RunFile run = even_run(p, chunks, m);
    run.parallel.schedule = interleaved ? config::ScheduleKind::interleaved : config::ScheduleKind::gpipe;
    run.cluster.nvlink_bandwidth = run.cluster.nic_bandwidth = 1e30;
    run.cluster.nvlink_latency = run.cluster.nic_latency = 0;
    const StepResult r = simulate(run, no_jitter());
    const double over_compute = static_cast<double>(p - 1) / static_cast<double>(chunks * m);
    EXPECT_NEAR(r.bubble_fraction, over_compute / (1 + over_compute), 0.003)
        << p << " " << chunks << " " << m;
    EXPECT_NEAR(r.split.bubble / r.split.compute, over_compute, 0.005 * (1 + over_compute))
        << p << " " << chunks << " " << m;
  }
}

}  // namespace
}  // namespace lockstep::sim
