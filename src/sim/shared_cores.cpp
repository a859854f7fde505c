#include "sim/shared_cores.hpp"

#include <algorithm>
#include <cmath>

#include "cost/transfer_prices.hpp"

namespace lockstep::sim {

namespace {

// Seconds that a worker keeps a core when it waits for others that need it: of the number of workers measured
// that is nearest to `ranks`, the smallest size.
double switch_seconds(const config::ClusterConfig& cluster, int64_t ranks) {
  const config::TimedTransfer* nearest = nullptr;
  for (const config::TimedTransfer& time : cluster.all_gather_times) {  // ascending ranks, then sizes
    if (time.ranks <= cluster.cores) continue;
    const auto distance = [&](const config::TimedTransfer& t) { return std::abs(t.ranks - ranks); };
    if (nearest == nullptr || distance(time) < distance(*nearest)) nearest = &time;
  }
  if (nearest == nullptr) return 0;
  return nearest->seconds * static_cast<double>(cluster.cores) / static_cast<double>(nearest->ranks);
}

// Seconds by rank that collectives and sends keep a core busy.
std::vector<double> transfer_work(const parallel::Layout& layout,
                                  const std::vector<parallel::Program>& programs, double switching) {
  const parallel::Mesh& mesh = layout.mesh();
  const double cores = static_cast<double>(layout.run().cluster.cores);
  cost::TransferPrices prices(layout.run(), mesh);
  std::vector<double> work(static_cast<size_t>(mesh.size()));
  for (const parallel::Program& program : programs) {
    for (const parallel::Action& action : program.actions) {
      for (const model::Op& op : parallel::action_ops(layout, program.stage, action)) {
        const bool sends = op.kind == model::OpKind::send;
        if (!sends && !model::is_collective(op.kind)) continue;
        const cost::Transfer transfer{op.kind, op.axis, op.bytes, sends ? action.peer - program.stage : 0};
        // One end of a message works at a time.
        const double had_a_core = sends ? 1 : std::min(1.0, cores / mesh.size(op.axis));
        const cost::RankSeconds& seconds = prices.seconds(transfer);
        for (int rank = 0; rank < mesh.size(); ++rank) {
          if (mesh.coordinates(rank).pp != program.stage) continue;
          const double one = seconds[static_cast<size_t>(rank)];
          if (one > 0) work[static_cast<size_t>(rank)] += one * had_a_core + switching;
        }
      }
    }
  }
  return work;
}

// What the ranks of the busiest node keep its cores busy with. Waiting for a batch keeps none busy.
double busiest_node(const config::ClusterConfig& cluster, const StepResult& step,
                    const std::vector<double>& transfers) {
  std::vector<double> nodes;
  for (size_t rank = 0; rank < step.kernel_seconds.size(); ++rank) {
    if (rank / static_cast<size_t>(cluster.gpus_per_node) == nodes.size()) nodes.push_back(0);
    nodes.back() += step.kernel_seconds[rank] + step.pause_seconds[rank] + transfers[rank];
  }
  return *std::max_element(nodes.begin(), nodes.end());
}

StepOptions stretched(const parallel::Layout& layout, StepOptions options, double stretch) {
  for (int rank = 0; rank < layout.mesh().size(); ++rank) options.slow.push_back({rank, stretch});
  return options;
}

// The smallest f at which a step takes `wanted` seconds, more than at f = 1. Its seconds grow with f along
// straight pieces, ever more steeply (waiting takes maxima of sums): a line between two sides of the answer
// finds it, with a bisection now and then so that both sides close in.
template <class Seconds>
double smallest_stretch(double wanted, double at_one, double longest_kernels, Seconds&& seconds) {
  constexpr double precision = 1e-9;
  double low = 1, low_seconds = at_one;
  // A step takes no less than the kernels of any rank.
  double high = wanted / longest_kernels, high_seconds = seconds(high);
  for (int tries = 0; tries < 60 && high - low > precision * high; ++tries) {
    const bool line = tries % 3 != 2 && high_seconds > low_seconds;
    const double way = line ? (wanted - low_seconds) / (high_seconds - low_seconds) : 0.5;
    const double middle = low + way * (high - low);
    const double got = seconds(middle);
    if (std::abs(got - wanted) <= precision * wanted) return middle;
    (got < wanted ? low : high) = middle;
    (got < wanted ? low_seconds : high_seconds) = got;
  }
  return high;
}

}  // namespace

SharedStep simulate_shared_step(const parallel::Layout& layout,
                                const std::vector<parallel::Program>& programs, const StepOptions& options) {
  const config::ClusterConfig& cluster = layout.run().cluster;
  SharedStep shared{simulate_step(layout, programs, options)};
  const int64_t ranks_of_node = std::min<int64_t>(cluster.gpus_per_node, layout.mesh().size());
  if (cluster.cores == 0 || ranks_of_node <= cluster.cores) return shared;
  const std::vector<double> transfers =
      transfer_work(layout, programs, switch_seconds(cluster, ranks_of_node));
  const double wanted = busiest_node(cluster, shared.step, transfers) / static_cast<double>(cluster.cores);
  if (wanted <= shared.step.seconds) return shared;

  double wall = shared.step.wall_seconds;
  const double longest =
      *std::max_element(shared.step.kernel_seconds.begin(), shared.step.kernel_seconds.end());
  StepOptions untraced = options;
  untraced.traced_ranks.clear();
  const auto seconds = [&](double stretch) {
    const StepResult step = simulate_step(layout, programs, stretched(layout, untraced, stretch));
    wall += step.wall_seconds;
    return step.seconds;
  };
  shared.stretch = smallest_stretch(wanted, shared.step.seconds, longest, seconds);
  shared.step = simulate_step(layout, programs, stretched(layout, options, shared.stretch));
  shared.step.wall_seconds += wall;
  return shared;
}

}  // namespace lockstep::sim
