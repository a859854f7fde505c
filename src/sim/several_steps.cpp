#include "sim/several_steps.hpp"

#include <algorithm>
#include <cmath>
#include <stdexcept>
#include <utility>

#include "sim/step_result.hpp"

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
  std::vector<uint32_t> ids;
  for (const std::string& name : from.names) {
    const auto found = std::find(to.names.begin(), to.names.end(), name);
    ids.push_back(static_cast<uint32_t>(found - to.names.begin()));
    if (found == to.names.end()) to.names.push_back(name);
  }
  for (observe::Span span : from.spans) {
    span.name = ids.at(span.name);
    to.spans.push_back(span);
  }
  to.dropped += from.dropped;
}

// The figures that are means over steps. bubble_fraction is not among them: it is the schedule's, the same
// in every step.
std::vector<double*> averaged(StepResult& r) {
  std::vector<double*> out = {&r.seconds, &r.seconds_p50, &r.seconds_p99};
  for (double* part : r.split.parts()) out.push_back(part);
  for (Phase& phase : r.phases) out.insert(out.end(), {&phase.start, &phase.end});
  for (double& seconds : r.finish_seconds) out.push_back(&seconds);
  for (auto* by_rank : {&r.kernel_seconds, &r.pause_seconds, &r.behind_seconds}) {
    for (double& seconds : *by_rank) out.push_back(&seconds);
  }
  return out;
}

}  // namespace

void SeveralSteps::add(StepResult step) {
  const double before = total_.seconds;
  seconds_.push_back(step.seconds);
  if (seconds_.size() == 1) {
    total_ = std::move(step);
    return;
  }
  const std::vector<double*> sums = averaged(total_), terms = averaged(step);
  for (size_t i = 0; i < sums.size(); ++i) *sums[i] += *terms[i];
  total_.ops += step.ops;
  total_.wall_seconds += step.wall_seconds;
  shift(step.traces, before);
  for (size_t i = 0; i < total_.traces.size(); ++i) append(total_.traces[i], step.traces[i]);
}

StepResult SeveralSteps::summary() const {
  if (seconds_.empty()) throw std::invalid_argument("a summary needs at least one step");
  StepResult mean = total_;
  for (double* figure : averaged(mean)) *figure /= static_cast<double>(seconds_.size());
  mean.slowest_rank = furthest_behind(mean);
  return mean;
}

}  // namespace lockstep::sim
