#include "cost/collective_cost.hpp"

#include <algorithm>
#include <stdexcept>
#include <vector>

namespace lockstep::cost {

namespace {

// One direction of every rank's port during a round.
struct PortTimes {
  explicit PortTimes(int ranks) : latency(static_cast<size_t>(ranks)), transfer(latency.size()) {}

  void add(int rank, double bytes, const cluster::Path& path) {
    const size_t i = static_cast<size_t>(rank);
    latency[i] = std::max(latency[i], path.latency);
    transfer[i] += bytes * path.seconds_per_byte;
    longest = std::max(longest, latency[i] + transfer[i]);
  }

  std::vector<double> latency, transfer;
  double longest = 0;
};

}  // namespace

double step_list_seconds(const collective::StepList& list, int64_t bytes,
                         const std::function<cluster::Path(int, int)>& path) {
  const double chunk_bytes = static_cast<double>(bytes) / list.chunks;
  double seconds = 0;
  for (size_t i = 0; i < list.steps.size();) {
    const int round = list.steps[i].round;
    PortTimes out(list.ranks), in(list.ranks);
    for (; i < list.steps.size() && list.steps[i].round == round; ++i) {
      const collective::Step& step = list.steps[i];
      const cluster::Path way = path(step.from, step.to);
      out.add(step.from, chunk_bytes, way);
      in.add(step.to, chunk_bytes, way);
    }
    seconds += std::max(out.longest, in.longest);
  }
  return seconds;
}

CollectiveCost ring_cost(model::OpKind kind, int ranks) {
  if (!model::is_collective(kind)) throw std::invalid_argument("only collectives go round a ring");
  const double rounds = ranks - 1;
  const CollectiveCost once{rounds, rounds / ranks};
  if (kind == model::OpKind::all_reduce) return {2 * once.rounds, 2 * once.share};
  return once;
}

}  // namespace lockstep::cost
