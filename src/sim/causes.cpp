#include "sim/causes.hpp"

#include <fmt/format.h>

#include <functional>

#include "base/units.hpp"
#include "sim/imperfection.hpp"

namespace lockstep::sim {

namespace {

std::vector<int> ranks_with(int count, const std::function<bool(int)>& has) {
  std::vector<int> ranks;
  for (int rank = 0; rank < count; ++rank) {
    if (has(rank)) ranks.push_back(rank);
  }
  return ranks;
}

// "x1.5", or "x1.2 to x3".
std::string factors(const std::vector<config::SlowRank>& named) {
  double least = named.empty() ? 1 : named.front().factor, most = least;
  for (const config::SlowRank& one : named) {
    least = std::min(least, one.factor);
    most = std::max(most, one.factor);
  }
  return least == most ? fmt::format("x{:g}", most) : fmt::format("x{:g} to x{:g}", least, most);
}

std::string op_jitter(const StepOptions& options) {
  std::string out;
  if (options.op_jitter > 0) out = fmt::format("{:g} %", 100 * options.op_jitter);
  if (options.tail_probability > 0 && options.tail_factor > 1) {
    out += fmt::format("{}x{:g} for {:g} of them", out.empty() ? "" : ", ", options.tail_factor,
                       options.tail_probability);
  }
  return out;
}

}  // namespace

std::vector<Cause> causes(const parallel::Layout& layout, const StepOptions& options,
                          const LostPackets& lost) {
  const auto named = [](const std::vector<config::SlowRank>& list) {
    return [&list](int rank) { return named_factor(list, rank) != 1; };
  };
  std::vector<Cause> out;
  const auto add = [&](std::string_view name, std::string figure, const std::function<bool(int)>& has,
                       void (*remove)(StepOptions&)) {
    Cause cause{name, std::move(figure), ranks_with(layout.mesh().size(), has), remove};
    if (!cause.ranks.empty()) out.push_back(std::move(cause));
  };
  add("slow ranks", factors(options.slow), named(options.slow), [](StepOptions& o) { o.slow.clear(); });
  add("slow links", factors(options.slow_links), named(options.slow_links),
      [](StepOptions& o) { o.slow_links.clear(); });
  add(
      "throttled nodes", fmt::format("x{:g}", options.throttle_factor),
      [&](int rank) { return options.throttle_factor != 1 && is_throttled(layout, rank, options); },
      [](StepOptions& o) { o.throttled_nodes = 0; });
  add(
      "garbage collection", format_seconds(options.garbage_collection_seconds),
      [&](int rank) { return collects_garbage(rank, options); },
      [](StepOptions& o) { o.garbage_collection_seconds = 0; });
  add(
      "lost packets", fmt::format("{} of {}", lost.count, format_seconds(options.retransmit_seconds)),
      [&](int rank) { return lost.by_rank[static_cast<size_t>(rank)] > 0; },
      [](StepOptions& o) { o.retransmit_probability = 0; });
  add(
      "heat of the hour", fmt::format("x{:.4g}", heat_factor(options)),
      [&](int) { return heat_factor(options) > 1; }, [](StepOptions& o) { o.daily_heat = 0; });
  add(
      "speeds of ranks", fmt::format("{:g} %", 100 * options.rank_jitter),
      [&](int) { return options.jitter && options.rank_jitter > 0; },
      [](StepOptions& o) { o.rank_jitter = 0; });
  const std::string jitter = op_jitter(options);
  add(
      "jitter of ops", jitter, [&](int) { return options.jitter && !jitter.empty(); },
      [](StepOptions& o) { o.op_jitter = o.tail_probability = 0; });
  return out;
}

}  // namespace lockstep::sim
