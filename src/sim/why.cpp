#include "sim/why.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <numeric>

#include "sim/imperfection.hpp"
#include "sim/shared_cores.hpp"

namespace lockstep::sim {

namespace {

constexpr size_t most_slow = 3;

// Those furthest behind, the furthest first; nobody who is not behind.
std::vector<int> slowest_ranks(const std::vector<double>& behind) {
  std::vector<int> ranks(behind.size());
  std::iota(ranks.begin(), ranks.end(), 0);
  const auto further = [&](int a, int b) {
    return behind[static_cast<size_t>(a)] > behind[static_cast<size_t>(b)];
  };
  std::stable_sort(ranks.begin(), ranks.end(), further);
  ranks.resize(std::min(most_slow, ranks.size()));
  std::erase_if(ranks, [&](int rank) { return behind[static_cast<size_t>(rank)] <= 0; });
  return ranks;
}

// `excess`: how much longer than the median rank, as a share of that.
std::string reasons_of(const parallel::Layout& layout, int rank, const StepOptions& options,
                       const LostPackets& lost, double excess) {
  std::string out = reasons(layout, rank, options, lost);
  const bool named = !out.empty();
  const auto add = [&](const std::string& reason) { out += (out.empty() ? "" : ", ") + reason; };
  const double speed = own_speed(rank, options);
  if (speed >= 1.0005) add(fmt::format("own speed x{:.3f}", speed));
  const bool draws = options.jitter && (options.op_jitter > 0 || options.tail_probability > 0);
  if (draws && !named && speed - 1 < excess / 2) add("jitter of its ops");
  return out.empty() ? "transfers beside its kernels" : out;
}

// The rank's own seconds become those of its stage's median rank: by its kernels, and where its pause alone
// is longer without that.
void speed_up(StepOptions& options, const Why::Slow& slow) {
  double own = slow.kernel_seconds + slow.pause_seconds - slow.behind_seconds;
  if (slow.pause_seconds >= own) {
    options.unpaused.push_back(slow.rank);
  } else {
    own -= slow.pause_seconds;
  }
  if (own < slow.kernel_seconds) options.slow.push_back({slow.rank, own / slow.kernel_seconds});
}

}  // namespace

Why explain(const parallel::Layout& layout, const std::vector<parallel::Program>& programs,
            const StepOptions& options, const StepResult& result) {
  const auto step = [&](const StepOptions& other) {
    return simulate_shared_step(layout, programs, other).step;
  };
  Why why;
  why.seconds = result.seconds;
  why.ranks = layout.mesh().size();
  StepOptions same = options;
  same.traced_ranks.clear();
  StepOptions with_path = same;
  with_path.critical_path = true;
  why.path = step(with_path).critical_path;
  for (size_t kind = 0; kind < path_kinds; ++kind) {
    if (why.path.seconds[kind] <= 0) continue;
    StepOptions other = same;
    other.free = {static_cast<PathKind>(kind)};
    why.if_free.push_back({other.free.front(), step(other).seconds});
  }
  StepOptions apart = same;
  apart.contention = false;
  why.without_contention = step(apart).seconds;

  const LostPackets lost = lost_packets(layout, programs, options);
  StepOptions none = same;
  for (const Cause& cause : causes(layout, options, lost)) {
    StepOptions other = same;
    cause.remove(other);
    cause.remove(none);
    why.causes.push_back({cause, step(other).seconds});
  }
  why.without_causes = why.causes.empty() ? why.seconds : step(none).seconds;

  StepOptions faster = same;
  for (const int rank : slowest_ranks(result.behind_seconds)) {
    const auto r = static_cast<size_t>(rank);
    const double behind = result.behind_seconds[r];
    const double median = result.kernel_seconds[r] + result.pause_seconds[r] - behind;
    const double excess = median > 0 ? behind / median : 0;
    why.slowest.push_back({rank, result.kernel_seconds[r], result.pause_seconds[r], behind,
                           reasons_of(layout, rank, options, lost, excess)});
    speed_up(faster, why.slowest.back());
  }
  why.without_slowest = why.slowest.empty() ? why.seconds : step(faster).seconds;
  return why;
}

}  // namespace lockstep::sim
