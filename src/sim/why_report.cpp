// What `simulate --why` says.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "base/json.hpp"
#include "base/units.hpp"
#include "sim/report.hpp"
#include "sim/why.hpp"

namespace lockstep::sim {

namespace {

constexpr size_t most_path_ranks = 5;
constexpr size_t most_rank_runs = 3;

// In percent; "none" for what is rounding.
std::string change(double before, double after) {
  const double percent = 100 * (after / before - 1);
  if (std::abs(percent) < 1e-5) return "none";
  if (std::abs(percent) < 0.01) return percent < 0 ? "-0.00 %" : "+0.00 %";
  return std::abs(percent) < 0.1 ? fmt::format("{:+.2f} %", percent) : fmt::format("{:+.1f} %", percent);
}

// How much longer than the median rank of its stage.
std::string beyond_median(const Why::Slow& slow) {
  const double own = slow.kernel_seconds + slow.pause_seconds, median = own - slow.behind_seconds;
  return median > 0 ? change(median, own) : "+" + format_seconds(slow.behind_seconds);
}

// "12: 16-23, 40, 44-46 ..."; "all".
std::string ranks_text(const std::vector<int>& ranks, int of) {
  if (static_cast<int>(ranks.size()) == of) return "all";
  std::string out = fmt::format("{}:", ranks.size());
  size_t runs = 0;
  for (size_t first = 0; first < ranks.size(); ++runs) {
    if (runs == most_rank_runs) return out + " ...";
    size_t last = first;
    while (last + 1 < ranks.size() && ranks[last + 1] == ranks[last] + 1) ++last;
    out += fmt::format("{} {}", runs > 0 ? "," : "", ranks[first]);
    if (last > first) out += fmt::format("-{}", ranks[last]);
    first = last + 1;
  }
  return out;
}

std::string path_text(const parallel::Mesh& mesh, const Why& why, const cost::Style& style) {
  std::string out =
      "\nThe critical path: what the step consists of, each part beginning where the one before ended.\n";
  cost::TextTable parts(style);
  parts.header({"part", "on the path", "of the step", "step if it were free", "change"});
  for (const Why::IfFree& free : why.if_free) {
    const auto kind = static_cast<size_t>(free.kind);
    parts.row({std::string(path_kind_names[kind]), format_seconds(why.path.seconds[kind]),
               cost::percent(why.path.seconds[kind] / why.seconds), format_seconds(free.seconds),
               change(why.seconds, free.seconds)},
              path_kind_names[kind]);
  }
  out += parts.text();
  const size_t count = why.path.ranks.size();
  out += fmt::format("It runs through {} rank{}; most of it is work of\n", count, count == 1 ? "" : "s");
  for (size_t i = 0; i < std::min(most_path_ranks, count); ++i) {
    const CriticalPath::Rank& r = why.path.ranks[i];
    out += fmt::format("  {}, {}\n", rank_name(mesh, r.rank), format_seconds(r.seconds));
  }
  return out + fmt::format("Without contention, each transfer as if alone: {} (change: {}).\n",
                           format_seconds(why.without_contention),
                           change(why.seconds, why.without_contention));
}

std::string causes_text(const Why& why, const cost::Style& style) {
  if (why.causes.empty()) {
    return "\nNothing slows the step down: no rank, link or op differs from what the run file's figures "
           "give it.\n";
  }
  std::string out =
      "\nWhat slows the step down, each taken from all ranks that have it, and from nobody else.\n";
  cost::TextTable table(style);
  table.header({"cause", "ranks", "step without it", "change"});
  for (const Why::Caused& caused : why.causes) {
    table.row({fmt::format("{}, {}", caused.cause.name, caused.cause.figure),
               ranks_text(caused.cause.ranks, why.ranks), format_seconds(caused.without),
               change(why.seconds, caused.without)});
  }
  if (why.causes.size() > 1) {
    table.row(
        {"all of these", "", format_seconds(why.without_causes), change(why.seconds, why.without_causes)});
  }
  return out + table.text();
}

std::string slowest_text(const parallel::Mesh& mesh, const Why& why, const cost::Style& style) {
  if (why.slowest.empty())
    return "\nNo rank's own kernels take longer than those of the others of its stage.\n";
  std::string out =
      "\nThe slowest ranks: own kernels, and pauses of their hosts, beside their stage's median rank.\n";
  cost::TextTable table(style);
  table.header({"rank", "own time", "than the median", "why"});
  for (const Why::Slow& s : why.slowest) {
    const double own = s.kernel_seconds + s.pause_seconds;
    table.row({rank_name(mesh, s.rank), format_seconds(own), beyond_median(s), s.reasons});
  }
  return out + table.text() +
         fmt::format("If {} as fast as the median rank: {} (change: {}).\n",
                     why.slowest.size() == 1 ? "it were" : "these were", format_seconds(why.without_slowest),
                     change(why.seconds, why.without_slowest));
}

Json cause_json(const Why::Caused& caused, int ranks) {
  Json json;
  json["cause"] = std::string(caused.cause.name);
  json["figure"] = caused.cause.figure;
  json["rank_count"] = caused.cause.ranks.size();
  if (static_cast<int>(caused.cause.ranks.size()) < ranks) json["ranks"] = caused.cause.ranks;
  json["seconds_without"] = caused.without;
  return json;
}

}  // namespace

std::string why_text(const parallel::Mesh& mesh, const Why& why, const cost::Style& style) {
  return path_text(mesh, why, style) + causes_text(why, style) + slowest_text(mesh, why, style);
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
  json["causes"] = Json::array();
  for (const Why::Caused& caused : why.causes) json["causes"].push_back(cause_json(caused, why.ranks));
  json["seconds_without_causes"] = why.without_causes;
  json["slowest"] = Json::array();
  for (const Why::Slow& s : why.slowest) {
    json["slowest"].push_back({{"rank", s.rank},
                               {"kernel_seconds", s.kernel_seconds},
                               {"pause_seconds", s.pause_seconds},
                               {"behind_seconds", s.behind_seconds},
                               {"reasons", s.reasons}});
  }
  json["seconds_without_slowest"] = why.without_slowest;
  return json;
}

}  // namespace lockstep::sim
