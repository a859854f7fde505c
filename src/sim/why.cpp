#include "sim/why.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <numeric>

#include "base/json.hpp"
#include "base/units.hpp"
#include "sim/imperfection.hpp"
#include "sim/report.hpp"
#include "sim/shared_cores.hpp"

namespace lockstep::sim {

namespace {

constexpr size_t most_slow = 3;
constexpr size_t most_path_ranks = 5;

double median(std::vector<double> values) {
  const auto middle = values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2);
  std::nth_element(values.begin(), middle, values.end());
  return *middle;
}

std::vector<int> slowest_ranks(const std::vector<double>& kernel_seconds) {
  std::vector<int> ranks(kernel_seconds.size());
  std::iota(ranks.begin(), ranks.end(), 0);
  const size_t count = std::min(most_slow, ranks.size());
  std::partial_sort(ranks.begin(), ranks.begin() + static_cast<std::ptrdiff_t>(count), ranks.end(),
                    [&](int a, int b) {
                      return kernel_seconds[static_cast<size_t>(a)] > kernel_seconds[static_cast<size_t>(b)];
                    });
  ranks.resize(count);
  return ranks;
}

// A rank's kernels take `factor` times as long as they do now.
void stretch(StepOptions& options, int rank, double factor) {
  const auto found = std::find_if(options.slow.begin(), options.slow.end(),
                                  [&](const config::SlowRank& slow) { return slow.rank == rank; });
  if (found == options.slow.end()) {
    options.slow.push_back({rank, factor});
  } else {
    found->factor *= factor;
  }
}

std::string saved(double before, double after) {
  const double share = after / before - 1;
  return share > -0.0005 ? "" : fmt::format("{:.1f} %", 100 * share);
}

}  // namespace

Why explain(const parallel::Layout& layout, const std::vector<parallel::Program>& programs,
            const StepOptions& options, const StepResult& result) {
  const auto step = [&](const StepOptions& other) {
    return simulate_shared_step(layout, programs, other).step;
  };
  Why why;
  why.seconds = result.seconds;
  StepOptions other = options;
  other.traced_ranks.clear();
  other.critical_path = true;
  why.path = step(other).critical_path;
  other.critical_path = false;
  for (size_t kind = 0; kind < path_kinds; ++kind) {
    if (why.path.seconds[kind] <= 0) continue;
    StepOptions free = other;
    free.free = {static_cast<PathKind>(kind)};
    why.if_free.push_back({free.free.front(), step(free).seconds});
  }
  StepOptions apart = other;
  apart.contention = false;
  why.without_contention = step(apart).seconds;

  why.median_kernel_seconds = median(result.kernel_seconds);
  for (const int rank : slowest_ranks(result.kernel_seconds)) {
    const double seconds = result.kernel_seconds[static_cast<size_t>(rank)];
    why.slowest.push_back({rank, seconds, reasons(layout, rank, options)});
    if (seconds > why.median_kernel_seconds) stretch(other, rank, why.median_kernel_seconds / seconds);
  }
  why.without_slowest = step(other).seconds;
  return why;
}

std::string why_text(const parallel::Mesh& mesh, const Why& why, const cost::Style& style) {
  std::string out =
      "\nThe critical path: what the step consists of, each part beginning where the one before ended.\n";
  cost::TextTable parts(style);
  parts.header({"part", "on the path", "of the step", "step if it were free", "change"});
  for (const Why::IfFree& free : why.if_free) {
    const auto kind = static_cast<size_t>(free.kind);
    parts.row({std::string(path_kind_names[kind]), format_seconds(why.path.seconds[kind]),
               cost::percent(why.path.seconds[kind] / why.seconds), format_seconds(free.seconds),
               saved(why.seconds, free.seconds)},
              path_kind_names[kind]);
  }
  out += parts.text();
  out += fmt::format("It runs through {} ranks; most of it is work of", why.path.ranks.size());
  for (size_t i = 0; i < std::min(most_path_ranks, why.path.ranks.size()); ++i) {
    const CriticalPath::Rank& r = why.path.ranks[i];
    out += fmt::format("{} {} ({})", i > 0 ? "," : "", rank_name(mesh, r.rank), format_seconds(r.seconds));
  }
  out += fmt::format(
      ".\nWithout contention, each transfer as if alone: {}{}.\n", format_seconds(why.without_contention),
      why.without_contention < why.seconds ? " (" + saved(why.seconds, why.without_contention) + ")" : "");
  out += "\nThe slowest ranks, whom the others wait for.\n";
  cost::TextTable slow(style);
  slow.header({"rank", "own kernels", "than the median", "why"});
  for (const Why::Slow& s : why.slowest) {
    slow.row({rank_name(mesh, s.rank), format_seconds(s.kernel_seconds),
              fmt::format("{:+.1f} %", 100 * (s.kernel_seconds / why.median_kernel_seconds - 1)),
              s.reasons.empty() ? "its own speed" : s.reasons});
  }
  return out + slow.text() +
         fmt::format("If they were as fast as the median rank: {}, {} less.\n",
                     format_seconds(why.without_slowest),
                     format_seconds(std::max(0.0, why.seconds - why.without_slowest)));
}

Json why_json(const Why& why) {
  Json json;
  for (size_t kind = 0; kind < path_kinds; ++kind) {
    json["critical_path_seconds"][std::string(path_kind_names[kind])] = why.path.seconds[kind];
  }
  json["critical_path_ranks"] = Json::array();
  for (const CriticalPath::Rank& r : why.path.ranks) {
    json["critical_path_ranks"].push_back({{"rank", r.rank}, {"seconds", r.seconds}});
  }
  for (const Why::IfFree& free : why.if_free) {
    json["seconds_if_free"][std::string(path_kind_names[static_cast<size_t>(free.kind)])] = free.seconds;
  }
  json["seconds_without_contention"] = why.without_contention;
  json["slowest"] = Json::array();
  for (const Why::Slow& s : why.slowest) {
    json["slowest"].push_back(
        {{"rank", s.rank}, {"kernel_seconds", s.kernel_seconds}, {"reasons", s.reasons}});
  }
  json["seconds_without_slowest"] = why.without_slowest;
  return json;
}

}  // namespace lockstep::sim
