#include "plan/stage_costs.hpp"

#include <algorithm>

#include "cost/collective_cost.hpp"
#include "parallel/program.hpp"

namespace lockstep::plan {

namespace {

using Kind = parallel::ActionKind;
using model::Axis;

// The slowest ring along each axis among a stage's ranks, and its slowest message.
struct StagePath {
  cluster::Path tp, dp, pp, message;
};

void slow_down(cluster::Path& path, const cluster::Path& other) {
  path.latency = std::max(path.latency, other.latency);
  path.seconds_per_byte = std::max(path.seconds_per_byte, other.seconds_per_byte);
}

std::vector<StagePath> slowest_paths(const parallel::Mesh& mesh, const cluster::Network& network) {
  const auto axis = [&](Axis a) { return cluster::RankAxis{mesh.size(), mesh.stride(a), mesh.size(a)}; };
  const auto tp = network.ring_paths(axis(Axis::tp));
  const auto dp = network.ring_paths(axis(Axis::dp));
  const auto pp = network.ring_paths(axis(Axis::pp));
  const auto next = network.shift_paths(axis(Axis::pp), 1);
  std::vector<StagePath> paths(static_cast<size_t>(mesh.size(Axis::pp)));
  for (int rank = 0; rank < mesh.size(); ++rank) {
    StagePath& path = paths[static_cast<size_t>(mesh.coordinates(rank).pp)];
    const size_t r = static_cast<size_t>(rank);
    slow_down(path.tp, tp[r]);
    slow_down(path.dp, dp[r]);
    slow_down(path.pp, pp[r]);
    slow_down(path.message, next[r]);
  }
  return paths;
}

class Pricer {
 public:
  Pricer(const parallel::Layout& layout, const cost::OpPrices& prices, int stage, const StagePath& path)
      : layout_(layout), prices_(prices), stage_(stage), path_(path) {}

  // Sums over an action's ops: kernels, and collectives by axis.
  struct Sums {
    double kernels = 0, tp = 0, dp = 0, pp = 0;
  };
  Sums sums(Kind kind, int chunk) const {
    Sums s;
    for (const model::Op& op : parallel::action_ops(layout_, stage_, {kind, chunk})) {
      if (cost::is_kernel(op.kind)) s.kernels += prices_.kernel_seconds(op);
      if (op.axis == Axis::tp) s.tp += ring(op, path_.tp);
      if (op.axis == Axis::dp) s.dp += ring(op, path_.dp);
      if (op.axis == Axis::pp) s.pp += ring(op, path_.pp);
    }
    return s;
  }

 private:
  double ring(const model::Op& op, const cluster::Path& path) const {
    return cost::ring_cost(op.kind, layout_.mesh().size(op.axis)).seconds(op.bytes, path);
  }

  const parallel::Layout& layout_;
  const cost::OpPrices& prices_;
  int stage_;
  const StagePath& path_;
};

StageCost stage_cost(const parallel::Layout& layout, const cost::OpPrices& prices, int stage,
                     const StagePath& path) {
  const Pricer pricer(layout, prices, stage, path);
  StageCost cost;
  for (int c = 0; c < layout.virtual_stages(); ++c) {
    const auto forward = pricer.sums(Kind::forward, c);
    const auto backward = pricer.sums(Kind::backward, c);
    const auto reduce = pricer.sums(Kind::reduce_gradients, c);
    cost.forward.push_back({forward.kernels, forward.tp});
    cost.backward.push_back({backward.kernels, backward.tp});
    cost.reduce.push_back(reduce.dp);
    cost.reduce_tp.push_back(reduce.tp);
    cost.adamw.push_back(pricer.sums(Kind::optimizer_step, c).kernels);
    cost.gather.push_back(pricer.sums(Kind::gather_parameters, c).dp);
  }
  cost.load = pricer.sums(Kind::load_batch, -1).kernels;
  const auto norm = pricer.sums(Kind::gradient_norm, -1);
  cost.norm_kernel = norm.kernels;
  cost.norm_dp = norm.dp;
  cost.norm_tp = norm.tp;
  cost.norm_pp = norm.pp;
  cost.message = path.message.seconds(static_cast<double>(model::boundary_bytes(layout.shape())));
  return cost;
}

}  // namespace

double StageCost::work() const {
  double sum = 0;
  for (const PassCost& pass : forward) sum += pass.seconds();
  for (const PassCost& pass : backward) sum += pass.seconds();
  return sum;
}

double StageCost::kernels() const {
  double sum = 0;
  for (const PassCost& pass : forward) sum += pass.kernels;
  for (const PassCost& pass : backward) sum += pass.kernels;
  return sum;
}

std::vector<StageCost> stage_costs(const parallel::Layout& layout, const cost::OpPrices& prices) {
  const auto paths = slowest_paths(layout.mesh(), prices.network());
  std::vector<StageCost> costs;
  for (int s = 0; s < layout.stages(); ++s) {
    costs.push_back(stage_cost(layout, prices, s, paths[static_cast<size_t>(s)]));
  }
  return costs;
}

}  // namespace lockstep::plan
