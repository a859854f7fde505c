#include "sim/shared_cores.hpp"

#include <algorithm>
#include <cmath>

#include "cost/op_prices.hpp"
#include "cost/transfer_prices.hpp"
#include "sim/op_transfer.hpp"

namespace lockstep::sim {

namespace {

// What collectives and sends keep a core busy with, of a rank.
struct TransferWork {
  double seconds = 0;
  double number = 0;
};

std::vector<TransferWork> transfer_work(const parallel::Layout& layout,
                                        const std::vector<parallel::Program>& programs,
                                        const StepOptions& options) {
  const parallel::Mesh& mesh = layout.mesh();
  const double cores = static_cast<double>(layout.run().cluster.cores);
  const auto network = network_for(layout, options, options.network);
  std::vector<TransferWork> work(static_cast<size_t>(mesh.size()));
  for (const parallel::Program& program : programs) {
    for (const parallel::Action& action : program.actions) {
      for (const model::Op& op : parallel::action_ops(layout, program.stage, action)) {
        const auto transfer = transfer_of(layout, program.stage, action, op);
        if (!transfer || options.is_free(transfer_kind(op.axis))) continue;
        // One end of a message works at a time.
        const double had_a_core =
            op.kind == model::OpKind::send ? 1 : std::min(1.0, cores / mesh.size(op.axis));
        const cost::RankSeconds& seconds = network->prices().seconds(*transfer);
        for (int rank = 0; rank < mesh.size(); ++rank) {
          if (mesh.coordinates(rank).pp != program.stage) continue;
          const double one = seconds[static_cast<size_t>(rank)];
          if (!(one > 0)) continue;
          TransferWork& of_rank = work[static_cast<size_t>(rank)];
          of_rank.seconds += one * had_a_core;
          of_rank.number += 1;
        }
      }
    }
  }
  return work;
}

// Where a worker waits before it computes; none: nowhere yet.
double CoreWaits::*wait_of(const model::Op& op) {
  if (op.kind == model::OpKind::receive) return &CoreWaits::pp;
  if (!model::is_collective(op.kind)) return nullptr;
  switch (op.axis) {
    case model::Axis::tp:
    case model::Axis::tp_kv:
      return &CoreWaits::tp;
    case model::Axis::cp:
      return &CoreWaits::cp;
    case model::Axis::pp:
    case model::Axis::pp_ends:
      return &CoreWaits::pp;
    default:
      return &CoreWaits::dp;
  }
}

// Before another worker may interrupt one that computes. Linux 6.6 and later: at most 0.7 ms x (1 + log2 of
// up to 8 cores), looked at every 1 to 4 ms.
constexpr double time_slice = 3e-3;

// Kernels between two waits of one stage's program, one after another. The first ones of a step follow the
// last wait of the step before.
class Bursts {
 public:
  void kernel(double seconds) { burst_ += seconds; }
  void wait(double CoreWaits::*where) {
    end_burst();
    where_ = where;
  }
  // Shares of all kernels' seconds; empty where there are none.
  CoreWaits take() {
    end_burst();
    if (where_ == nullptr) where_ = &CoreWaits::kernels;
    found_.*where_ += before_any_wait_;
    return found_;
  }

 private:
  void end_burst() {
    const double waits = std::min(burst_, time_slice);
    (where_ == nullptr ? before_any_wait_ : found_.*where_) += waits;
    found_.kernels += burst_ - waits;
    burst_ = 0;
  }

  double CoreWaits::*where_ = nullptr;
  double burst_ = 0, before_any_wait_ = 0;
  CoreWaits found_;
};

CoreWaits core_waits(const parallel::Layout& layout, const std::vector<parallel::Program>& programs,
                     double stretch) {
  const cost::OpPrices prices(layout.run());
  CoreWaits sum;
  for (const parallel::Program& program : programs) {
    Bursts bursts;
    for (const parallel::Action& action : program.actions) {
      for (const model::Op& op : parallel::action_ops(layout, program.stage, action)) {
        if (op.kind == model::OpKind::host) continue;
        if (cost::is_kernel(op.kind)) {
          bursts.kernel(prices.kernel_seconds(op));
        } else if (double CoreWaits::*const where = wait_of(op)) {
          bursts.wait(where);
        }
      }
    }
    const CoreWaits of_stage = bursts.take();
    const double longer = (stretch - 1) / layout.stages();
    for (double CoreWaits::*const part :
         {&CoreWaits::tp, &CoreWaits::cp, &CoreWaits::pp, &CoreWaits::dp, &CoreWaits::kernels}) {
      sum.*part += of_stage.*part * longer;
    }
  }
  return sum;
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
  // A step takes no less than the kernels of any rank, unless others slow them by a part that is not
  // stretched.
  double high = wanted / longest_kernels, high_seconds = seconds(high);
  for (; high_seconds < wanted; high_seconds = seconds(high)) {
    low = high;
    low_seconds = high_seconds;
    high *= 2;
  }
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

// Waiting for a batch keeps no core busy; what a worker does between two steps does.
CoreWork core_work(const parallel::Layout& layout, const std::vector<parallel::Program>& programs,
                   const StepOptions& options, const StepResult& step) {
  const config::ClusterConfig& cluster = layout.run().cluster;
  const std::vector<TransferWork> transfers = transfer_work(layout, programs, options);
  const double overhead = std::min(step.split.data, cluster.step_overhead);
  CoreWork busiest, node;
  for (size_t rank = 0; rank < step.kernel_seconds.size(); ++rank) {
    if (rank % static_cast<size_t>(cluster.gpus_per_node) == 0) node = {};
    node.seconds += step.kernel_seconds[rank] + step.pause_seconds[rank] + overhead + transfers[rank].seconds;
    node.switches += transfers[rank].number;
    const double cost = cluster.core_switch_seconds;
    const bool more = node.seconds + cost * node.switches > busiest.seconds + cost * busiest.switches;
    if (more) busiest = node;
  }
  return busiest;
}

SharedStep simulate_shared_step(const parallel::Layout& layout,
                                const std::vector<parallel::Program>& programs,
                                const StepOptions& wanted_options) {
  StepOptions options = wanted_options;
  options.network = network_for(layout, options, options.network);
  const config::ClusterConfig& cluster = layout.run().cluster;
  SharedStep shared{simulate_step(layout, programs, options)};
  const int64_t ranks_of_node = std::min<int64_t>(cluster.gpus_per_node, layout.mesh().size());
  if (cluster.cores == 0 || ranks_of_node <= cluster.cores) return shared;
  const CoreWork work = core_work(layout, programs, options, shared.step);
  const double wanted =
      (work.seconds + work.switches * cluster.core_switch_seconds) / static_cast<double>(cluster.cores);
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
  shared.core_waits = core_waits(layout, programs, shared.stretch);
  return shared;
}

}  // namespace lockstep::sim
