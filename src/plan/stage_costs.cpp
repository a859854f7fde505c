#include "plan/stage_costs.hpp"

#include <algorithm>

#include "cost/collective_cost.hpp"

namespace lockstep::plan {

namespace {

using Kind = parallel::ActionKind;
using model::Axis;

// The slowest ring along each axis among a stage's ranks, and its slowest message.
struct StagePath {
  cluster::Path tp, tp_kv, cp, dp, pp, pp_ends, message;
};

void slow_down(cluster::Path& path, const cluster::Path& other) {
  path.latency = std::max(path.latency, other.latency);
  path.seconds_per_byte = std::max(path.seconds_per_byte, other.seconds_per_byte);
}

std::vector<StagePath> slowest_paths(const parallel::Mesh& mesh, const cluster::Network& network) {
  std::vector<StagePath> paths(static_cast<size_t>(mesh.size(Axis::pp)));
  const auto take = [&](cluster::Path StagePath::*path, const std::vector<cluster::Path>& by_rank) {
    for (int rank = 0; rank < mesh.size(); ++rank) {
      const auto stage = static_cast<size_t>(mesh.coordinates(rank).pp);
      slow_down(paths[stage].*path, by_rank[static_cast<size_t>(rank)]);
    }
  };
  const auto rings = [&](cluster::Path StagePath::*path, Axis axis) {
    take(path, network.ring_paths(mesh.size(), [&](int rank) { return mesh.group(axis, rank); }));
  };
  rings(&StagePath::tp, Axis::tp);
  rings(&StagePath::tp_kv, Axis::tp_kv);
  rings(&StagePath::cp, Axis::cp);
  rings(&StagePath::dp, Axis::dp_cp);
  rings(&StagePath::pp, Axis::pp);
  rings(&StagePath::pp_ends, Axis::pp_ends);
  take(&StagePath::message,
       network.shift_paths({mesh.size(), mesh.stride(Axis::pp), mesh.size(Axis::pp)}, 1));
  return paths;
}

class Pricer {
 public:
  Pricer(const parallel::Layout& layout, const cost::OpPrices& prices, int stage, const StagePath& path)
      : layout_(layout), prices_(prices), stage_(stage), path_(path) {}

  // Sums over an action's ops.
  struct Sums {
    BlockingCost blocking;
    double dp = 0, pp = 0;
  };
  Sums sums(Kind kind, int chunk) const {
    Sums s;
    for (const model::Op& op : parallel::action_ops(layout_, stage_, {kind, chunk})) {
      if (cost::is_kernel(op.kind)) s.blocking.kernels += prices_.kernel_seconds(op);
      if (op.axis == Axis::tp) s.blocking.tp += ring(op, path_.tp);
      if (op.axis == Axis::tp_kv) s.blocking.tp += ring(op, path_.tp_kv);
      if (op.axis == Axis::cp) s.blocking.cp += ring(op, path_.cp);
      if (op.axis == Axis::dp_cp) s.dp += ring(op, path_.dp);
      if (op.axis == Axis::pp) s.pp += ring(op, path_.pp);
      if (op.axis == Axis::pp_ends) s.pp += ring(op, path_.pp_ends);
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

ChunkCost chunk_cost(const parallel::Layout& layout, const Pricer& pricer, int stage, int chunk) {
  ChunkCost cost;
  cost.forward = pricer.sums(Kind::forward, chunk).blocking;
  cost.backward_input = pricer.sums(Kind::backward_input, chunk).blocking;
  cost.backward_weight = pricer.sums(Kind::backward_weight, chunk).blocking;
  const Pricer::Sums reduce = pricer.sums(Kind::reduce_gradients, chunk);
  cost.reduce = reduce.blocking;
  cost.reduce_dp = reduce.dp;
  cost.reductions = layout.scatters_every_micro_batch() ? layout.micro_batches() : layout.rounds();
  if (layout.zero() == 0) cost.gather_gradients = pricer.sums(Kind::gather_gradients, chunk).dp;
  if (layout.has_tied_copy(stage, chunk)) cost.sum_tied = pricer.sums(Kind::sum_tied_gradients, chunk).pp;
  cost.update = pricer.sums(Kind::optimizer_step, chunk).blocking.kernels;
  if (layout.zero() > 0) cost.gather = pricer.sums(Kind::gather_parameters, chunk).dp;
  return cost;
}

StageCost stage_cost(const parallel::Layout& layout, const parallel::Program& program,
                     const cost::OpPrices& prices, const StagePath& path) {
  const Pricer pricer(layout, prices, program.stage, path);
  StageCost cost;
  for (int c = 0; c < layout.virtual_stages(); ++c) {
    cost.chunks.push_back(chunk_cost(layout, pricer, program.stage, c));
  }
  for (const parallel::Action& action : program.actions) {
    if (action.kind == Kind::unshard) ++cost.chunks[static_cast<size_t>(action.chunk)].unshards;
  }
  cost.load = pricer.sums(Kind::load_batch, -1).blocking.kernels;
  const auto norm = pricer.sums(Kind::gradient_norm, -1);
  cost.norm_kernel = norm.blocking.kernels;
  cost.norm_tp = norm.blocking.tp;
  cost.norm_dp = norm.dp;
  cost.norm_pp = norm.pp;
  cost.message = path.message.seconds(static_cast<double>(model::boundary_bytes(layout.shape())));
  return cost;
}

}  // namespace

BlockingCost& BlockingCost::operator+=(const BlockingCost& other) {
  kernels += other.kernels;
  tp += other.tp;
  cp += other.cp;
  return *this;
}
BlockingCost operator+(BlockingCost a, const BlockingCost& b) { return a += b; }
BlockingCost operator*(double times, const BlockingCost& cost) {
  return {times * cost.kernels, times * cost.tp, times * cost.cp};
}

BlockingCost StageCost::passes() const {
  BlockingCost sum;
  for (const ChunkCost& chunk : chunks) sum += chunk.forward + chunk.backward();
  return sum;
}

std::vector<StageCost> stage_costs(const parallel::Layout& layout,
                                   const std::vector<parallel::Program>& programs,
                                   const cost::OpPrices& prices) {
  const auto paths = slowest_paths(layout.mesh(), prices.network());
  std::vector<StageCost> costs;
  for (const parallel::Program& program : programs) {
    costs.push_back(stage_cost(layout, program, prices, paths[static_cast<size_t>(program.stage)]));
  }
  return costs;
}

}  // namespace lockstep::plan
