#include "sim/step_result.hpp"

#include <algorithm>
#include <array>
#include <cmath>

namespace lockstep::sim {

namespace {

struct RankSplit {
  cost::StepSplit split;
  double finish = 0;
  double kernels = 0;
};

RankSplit split_rank(const LaneTimes& times, size_t lane, double schedule_idle, double seconds) {
  RankSplit r;
  r.finish = times.clock[lane];
  cost::StepSplit& s = r.split;
  s.data = times.data[lane];
  s.tp = times.tp[lane];
  s.cp = times.cp[lane];
  s.optimizer = times.optimizer[lane];
  s.barrier = seconds - r.finish;
  const double pipeline = times.message[lane] + times.pp_meeting[lane];
  const double bubble_in_pipeline = std::min(schedule_idle, pipeline);
  const double bubble_in_dp = std::min(schedule_idle - bubble_in_pipeline, times.dp[lane]);
  s.bubble = bubble_in_pipeline + bubble_in_dp;
  s.pp = pipeline - bubble_in_pipeline;
  s.dp = times.dp[lane] - bubble_in_dp;
  s.compute = r.finish - (s.data + s.tp + s.cp + s.optimizer + pipeline + times.dp[lane]);
  r.kernels = s.compute - times.pause[lane] + s.optimizer;
  return r;
}

// Smallest value that at least `share` of the values do not exceed (nearest rank).
double percentile(std::vector<double> values, double share) {
  const double rank = std::ceil(share * static_cast<double>(values.size()));
  const auto at = values.begin() + static_cast<std::ptrdiff_t>(std::max(rank, 1.0)) - 1;
  std::nth_element(values.begin(), at, values.end());
  return *at;
}

std::vector<Phase> phases_of(const std::vector<StageRun>& runs, double first_finish, double seconds) {
  constexpr std::array<std::string_view, phase_kinds> names = {"data", "forward", "backward", "optimizer"};
  std::vector<Phase> phases;
  for (size_t kind = 0; kind < names.size(); ++kind) {
    PhaseTimes all;
    for (const StageRun& run : runs) {
      const PhaseTimes& one = run.phase(static_cast<PhaseKind>(kind));
      if (one.any()) all.add(one.start, one.end);
    }
    if (all.any()) phases.push_back({names[kind], all.start, all.end});
  }
  phases.push_back({"barrier", first_finish, seconds});
  return phases;
}

// Before all other spans.
void trace_batch_wait(observe::SpanFile& file, int64_t ns) {
  for (observe::Span& span : file.spans) {
    span.start_ns += ns;
    span.end_ns += ns;
  }
  observe::Span wait;
  wait.end_ns = ns;
  wait.name = static_cast<uint32_t>(file.names.size());
  wait.step = file.spans.empty() ? 0 : file.spans.front().step;
  wait.stream = observe::Stream::host;
  file.names.push_back("wait_for_batch");
  file.spans.insert(file.spans.begin(), wait);
}

// See StepResult.
std::vector<double> behind_seconds(const parallel::Mesh& mesh, const StepResult& result) {
  constexpr double rounding = 1e-9;  // of the step
  const auto own = [&](int rank) {
    return result.kernel_seconds[static_cast<size_t>(rank)] + result.pause_seconds[static_cast<size_t>(rank)];
  };
  std::vector<std::vector<double>> by_stage(static_cast<size_t>(mesh.size(parallel::Axis::pp)));
  for (int rank = 0; rank < mesh.size(); ++rank) {
    by_stage[static_cast<size_t>(mesh.coordinates(rank).pp)].push_back(own(rank));
  }
  std::vector<double> medians;
  for (const std::vector<double>& seconds : by_stage) medians.push_back(percentile(seconds, 0.5));
  std::vector<double> behind;
  for (int rank = 0; rank < mesh.size(); ++rank) {
    const double more = own(rank) - medians[static_cast<size_t>(mesh.coordinates(rank).pp)];
    behind.push_back(std::abs(more) <= rounding * result.seconds ? 0 : more);
  }
  return behind;
}

}  // namespace

void wait_for_batch(StepResult& result, double seconds) {
  for (double* time : {&result.seconds, &result.split.data, &result.seconds_p50, &result.seconds_p99}) {
    *time += seconds;
  }
  for (double& finish : result.finish_seconds) finish += seconds;
  for (Phase& phase : result.phases) {
    phase.start = phase.name == "data" ? 0 : phase.start + seconds;
    phase.end += seconds;
  }
  if (!result.critical_path.ranks.empty()) {
    result.critical_path.seconds[static_cast<size_t>(PathKind::data)] += seconds;
  }
  const int64_t ns = std::llround(seconds * 1e9);
  for (observe::SpanFile& file : result.traces) trace_batch_wait(file, ns);
}

int furthest_behind(const StepResult& result) {
  const std::vector<double>& behind = result.behind_seconds;
  return static_cast<int>(std::max_element(behind.begin(), behind.end()) - behind.begin());
}

StepResult collect_result(const parallel::Mesh& mesh, const LaneGrid& grid, const std::vector<StageRun>& runs,
                          const IdealPipeline& ideal) {
  StepResult result;
  result.ranks = mesh.size();
  for (const StageRun& run : runs) {
    for (const double finish : run.times().clock) result.seconds = std::max(result.seconds, finish);
  }
  // Sums go over ranks in ascending order, whatever the lanes' order is.
  const auto sums = result.split.parts();
  for (int rank = 0; rank < mesh.size(); ++rank) {
    const parallel::Coordinates c = mesh.coordinates(rank);
    const LaneTimes& times = runs[static_cast<size_t>(c.pp)].times();
    const auto lane = static_cast<size_t>(grid.lane(c.tp, grid.column(c.cp, c.dp)));
    const RankSplit r = split_rank(times, lane, ideal.idle(static_cast<size_t>(c.pp)), result.seconds);
    const auto parts = r.split.values();
    for (size_t i = 0; i < sums.size(); ++i) *sums[i] += parts[i];
    result.finish_seconds.push_back(r.finish);
    result.kernel_seconds.push_back(r.kernels);
    result.pause_seconds.push_back(times.pause[lane]);
  }
  const double ranks = static_cast<double>(mesh.size());
  for (double* sum : sums) *sum /= ranks;

  result.behind_seconds = behind_seconds(mesh, result);
  result.slowest_rank = furthest_behind(result);
  result.seconds_p50 = percentile(result.finish_seconds, 0.5);
  result.seconds_p99 = percentile(result.finish_seconds, 0.99);
  result.phases = phases_of(
      runs, *std::min_element(result.finish_seconds.begin(), result.finish_seconds.end()), result.seconds);
  return result;
}

}  // namespace lockstep::sim
