#include "sim/simulate_steps.hpp"

#include <algorithm>
#include <cmath>
#include <map>
#include <stdexcept>
#include <string>

namespace lockstep::sim {

namespace {

void shift(std::vector<observe::SpanFile>& traces, double seconds) {
  const int64_t ns = std::llround(seconds * 1e9);
  for (observe::SpanFile& file : traces) {
    for (observe::Span& span : file.spans) {
      span.start_ns += ns;
      span.end_ns += ns;
    }
  }
}

// Appends spans, with their names' ids as `to` has them.
void append(observe::SpanFile& to, const observe::SpanFile& from) {
  std::map<uint32_t, uint32_t> ids;
  for (uint32_t i = 0; i < from.names.size(); ++i) {
    const auto found = std::find(to.names.begin(), to.names.end(), from.names[i]);
    ids[i] = static_cast<uint32_t>(found - to.names.begin());
    if (found == to.names.end()) to.names.push_back(from.names[i]);
  }
  for (observe::Span span : from.spans) {
    span.name = ids.at(span.name);
    to.spans.push_back(span);
  }
  to.dropped += from.dropped;
}

void add(StepResult& sum, const StepResult& step) {
  sum.seconds += step.seconds;
  auto split = sum.split.values();
  const auto more = step.split.values();
  for (size_t i = 0; i < split.size(); ++i) split[i] += more[i];
  sum.split = cost::StepSplit::from(split);
  sum.ops += step.ops;
  sum.seconds_p50 += step.seconds_p50;
  sum.seconds_p99 += step.seconds_p99;
  sum.wall_seconds += step.wall_seconds;
  for (size_t i = 0; i < sum.phases.size(); ++i) {
    sum.phases[i].start += step.phases[i].start;
    sum.phases[i].end += step.phases[i].end;
  }
  for (size_t r = 0; r < sum.finish_seconds.size(); ++r) {
    sum.finish_seconds[r] += step.finish_seconds[r];
    sum.kernel_seconds[r] += step.kernel_seconds[r];
  }
  for (size_t i = 0; i < sum.traces.size(); ++i) append(sum.traces[i], step.traces[i]);
}

}  // namespace

std::vector<StepResult> simulate_steps(const parallel::Layout& layout,
                                       const std::vector<parallel::Program>& programs,
                                       const StepOptions& options, int count,
                                       const std::function<void(int)>& after_step) {
  std::vector<StepResult> steps;
  double start = 0;
  for (int i = 0; i < count; ++i) {
    StepOptions one = options;
    one.step = options.step + i;
    steps.push_back(simulate_step(layout, programs, one));
    shift(steps.back().traces, start);
    start += steps.back().seconds;
    if (after_step) after_step(i + 1);
  }
  return steps;
}

StepResult summary_of(std::vector<StepResult> steps) {
  if (steps.empty()) throw std::invalid_argument("a summary needs at least one step");
  StepResult sum = std::move(steps.front());
  for (size_t i = 1; i < steps.size(); ++i) add(sum, steps[i]);

  const double n = static_cast<double>(steps.size());
  auto split = sum.split.values();
  for (double& part : split) part /= n;
  sum.split = cost::StepSplit::from(split);
  sum.seconds /= n;
  sum.seconds_p50 /= n;
  sum.seconds_p99 /= n;
  for (Phase& phase : sum.phases) {
    phase.start /= n;
    phase.end /= n;
  }
  for (double& seconds : sum.finish_seconds) seconds /= n;
  for (double& seconds : sum.kernel_seconds) seconds /= n;
  const auto slowest = std::max_element(sum.kernel_seconds.begin(), sum.kernel_seconds.end());
  sum.slowest_rank = static_cast<int>(slowest - sum.kernel_seconds.begin());
  return sum;
}

}  // namespace lockstep::sim
