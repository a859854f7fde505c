#include "facts/power_waveform.hpp"

#include <algorithm>
#include <cmath>
#include <stdexcept>

namespace lockstep::facts {

namespace {

using observe::Span;
using observe::Stream;
using Interval = std::pair<double, double>;  // seconds

// Sorted and without overlap.
std::vector<Interval> merged(std::vector<Interval> intervals) {
  std::sort(intervals.begin(), intervals.end());
  std::vector<Interval> out;
  for (const Interval& one : intervals) {
    if (!out.empty() && one.first <= out.back().second) {
      out.back().second = std::max(out.back().second, one.second);
    } else {
      out.push_back(one);
    }
  }
  return out;
}

// Adds `watts` times the time that the intervals take of each bin.
void add(std::vector<double>& joules, double bin, const std::vector<Interval>& intervals, double watts) {
  for (const auto& [start, end] : intervals) {
    double at = start;
    for (size_t i = static_cast<size_t>(start / bin); at < end && i < joules.size(); ++i) {
      const double until = std::min(end, static_cast<double>(i + 1) * bin);
      if (until <= at) continue;
      joules[i] += watts * (until - at);
      at = until;
    }
  }
}

bool communicates(Stream stream) {
  return stream == Stream::tp || stream == Stream::cp || stream == Stream::pp || stream == Stream::dp;
}

}  // namespace

double PowerWaveform::peak() const { return *std::max_element(watts.begin(), watts.end()); }
double PowerWaveform::valley() const { return *std::min_element(watts.begin(), watts.end()); }

double PowerWaveform::largest_change(double within_seconds) const {
  const auto apart = static_cast<size_t>(std::llround(within_seconds / bin_seconds));
  double largest = 0;
  for (size_t i = 0; i < watts.size(); ++i) {
    for (size_t j = i + 1; j < watts.size() && j <= i + apart; ++j) {
      largest = std::max(largest, std::abs(watts[j] - watts[i]));
    }
  }
  return largest;
}

double PowerWaveform::mean(double step_seconds) const {
  double joules = 0, left = step_seconds;
  for (const double value : watts) {
    joules += value * std::min(bin_seconds, left);
    left -= bin_seconds;
  }
  return joules / step_seconds;
}

PowerWaveform power_waveform(const config::ClusterConfig& cluster,
                             const std::vector<observe::SpanFile>& traces, double gpus, double seconds,
                             double bin_seconds) {
  if (traces.empty() || !(seconds > 0) || !(bin_seconds > 0)) {
    throw std::invalid_argument("a waveform needs traces, and a step and bins that take time");
  }
  const auto bins = static_cast<size_t>(std::ceil(seconds / bin_seconds));
  std::vector<double> joules(bins, 0);
  const double each = gpus / static_cast<double>(traces.size());
  for (const observe::SpanFile& file : traces) {
    std::vector<Interval> kernels, busy;
    for (const Span& span : file.spans) {
      const Interval when{static_cast<double>(span.start_ns) / 1e9,
                          std::min(seconds, static_cast<double>(span.end_ns) / 1e9)};
      if (span.stream == Stream::compute) kernels.push_back(when);
      if (span.stream == Stream::compute || communicates(span.stream)) busy.push_back(when);
    }
    add(joules, bin_seconds, {{0, seconds}}, each * cluster.gpu_idle_watts);
    add(joules, bin_seconds, merged(busy), each * (cluster.gpu_communication_watts - cluster.gpu_idle_watts));
    add(joules, bin_seconds, merged(kernels),
        each * (cluster.gpu_compute_watts - cluster.gpu_communication_watts));
  }
  PowerWaveform out{bin_seconds, {}};
  for (size_t i = 0; i < bins; ++i) {
    const double length = std::min(bin_seconds, seconds - static_cast<double>(i) * bin_seconds);
    out.watts.push_back(joules[i] / length);
  }
  return out;
}

}  // namespace lockstep::facts
