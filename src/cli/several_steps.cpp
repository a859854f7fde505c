#include "cli/several_steps.hpp"

#include <algorithm>
#include <cmath>

namespace lockstep::cli {

namespace {

// Spans of a later step of the same rank, `offset_ns` later; names are joined.
void append(observe::SpanFile& to, const observe::SpanFile& from, int64_t offset_ns) {
  std::vector<uint32_t> ids;
  for (const std::string& name : from.names) {
    const auto found = std::find(to.names.begin(), to.names.end(), name);
    ids.push_back(static_cast<uint32_t>(found - to.names.begin()));
    if (found == to.names.end()) to.names.push_back(name);
  }
  for (observe::Span span : from.spans) {
    span.start_ns += offset_ns;
    span.end_ns += offset_ns;
    span.name = ids[span.name];
    to.spans.push_back(span);
  }
  to.dropped += from.dropped;
}

void add_to(std::vector<double>& sums, const std::vector<double>& values) {
  for (size_t i = 0; i < sums.size(); ++i) sums[i] += values[i];
}

}  // namespace

void SeveralSteps::add(sim::StepResult result) {
  const double before = total_.seconds;
  seconds_.push_back(result.seconds);
  if (seconds_.size() == 1) {
    total_ = std::move(result);
    return;
  }
  total_.seconds += result.seconds;
  auto parts = total_.split.values();
  for (size_t i = 0; i < parts.size(); ++i) parts[i] += result.split.values()[i];
  total_.split = cost::StepSplit::from(parts);
  total_.bubble_fraction += result.bubble_fraction;
  total_.ops += result.ops;
  total_.seconds_p50 += result.seconds_p50;
  total_.seconds_p99 += result.seconds_p99;
  for (size_t i = 0; i < total_.phases.size(); ++i) {
    total_.phases[i].start += result.phases[i].start;
    total_.phases[i].end += result.phases[i].end;
  }
  add_to(total_.finish_seconds, result.finish_seconds);
  add_to(total_.kernel_seconds, result.kernel_seconds);
  for (size_t i = 0; i < total_.traces.size(); ++i) {
    append(total_.traces[i], result.traces[i], std::llround(before * 1e9));
  }
  total_.wall_seconds += result.wall_seconds;
}

sim::StepResult SeveralSteps::summary() const {
  sim::StepResult mean = total_;
  if (seconds_.size() == 1) return mean;  // not a bit changed
  const auto steps = static_cast<double>(seconds_.size());
  mean.seconds /= steps;
  auto parts = mean.split.values();
  for (double& part : parts) part /= steps;
  mean.split = cost::StepSplit::from(parts);
  mean.bubble_fraction /= steps;
  mean.seconds_p50 /= steps;
  mean.seconds_p99 /= steps;
  for (sim::Phase& phase : mean.phases) {
    phase.start /= steps;
    phase.end /= steps;
  }
  for (double& seconds : mean.finish_seconds) seconds /= steps;
  for (double& seconds : mean.kernel_seconds) seconds /= steps;
  const auto busiest = std::max_element(mean.kernel_seconds.begin(), mean.kernel_seconds.end());
  mean.slowest_rank = static_cast<int>(busiest - mean.kernel_seconds.begin());
  return mean;
}

}  // namespace lockstep::cli
