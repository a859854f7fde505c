#include "plan/stage_costs.hpp"

#include <algorithm>
#include <map>

namespace lockstep::plan {

namespace {

using Kind = parallel::ActionKind;
using model::Axis;

double slowest(const cost::RankSeconds& seconds) {
  return *std::max_element(seconds.kinds().begin(), seconds.kinds().end());
}

// Transfers at the pace of each stage's slowest group, or message.
class SlowestOfStage {
 public:
  explicit SlowestOfStage(const parallel::Layout& layout)
      : prices_(without_slow_links(layout.run()), layout.mesh()), stages_(layout.stages()) {
    for (int rank = 0; rank < layout.mesh().size(); ++rank) {
      stage_of_.push_back(layout.mesh().coordinates(rank).pp);
    }
  }

  cost::TransferPrices& prices() { return prices_; }

  double seconds(const cost::Transfer& transfer, int stage) {
    std::vector<double>& slowest = slowest_[transfer];
    if (slowest.empty()) {
      slowest.assign(static_cast<size_t>(stages_), 0.0);
      const cost::RankSeconds& by_rank = prices_.seconds(transfer);
      for (size_t rank = 0; rank < by_rank.size(); ++rank) {
        double& longest = slowest[static_cast<size_t>(stage_of_[rank])];
        longest = std::max(longest, by_rank[rank]);
      }
    }
    return slowest[static_cast<size_t>(stage)];
  }

 private:
  // The plan is of a cluster in which all is well.
  static config::RunFile without_slow_links(config::RunFile run) {
    run.simulate.slow_links.clear();
    return run;
  }

  cost::TransferPrices prices_;
  int stages_;
  std::vector<int> stage_of_;  // by rank
  std::map<cost::Transfer, std::vector<double>> slowest_;
};

class Pricer {
 public:
  Pricer(const parallel::Layout& layout, const cost::OpPrices& prices, int stage, SlowestOfStage& transfers)
      : layout_(layout), prices_(prices), stage_(stage), transfers_(transfers) {}

  // Sums over an action's ops.
  struct Sums {
    BlockingCost blocking;
    double dp = 0, pp = 0;
  };
  Sums sums(Kind kind, int chunk) const {
    Sums s;
    const std::vector<model::Op> ops = parallel::action_ops(layout_, stage_, {kind, chunk});
    const OpSums sum = sum_ops(ops, prices_);
    s.blocking.kernels = sum.kernels;
    s.blocking.host = prices_.host_seconds(kind, ops);
    for (const auto& [transfer, times, waited] : sum.collectives) {
      const double one = transfers_.seconds(transfer, stage_), seconds = waited * one;
      if (transfer.axis == Axis::tp || transfer.axis == Axis::tp_kv) {
        s.blocking.tp += seconds;
        s.blocking.tp_hidden += times * one - seconds;
      }
      if (transfer.axis == Axis::cp) s.blocking.cp += seconds;
      if (transfer.axis == Axis::dp_cp) s.dp += seconds;
      if (transfer.axis == Axis::pp || transfer.axis == Axis::pp_ends) s.pp += seconds;
    }
    return s;
  }
  double message() const {
    return transfers_.seconds({model::OpKind::send, Axis::pp, model::boundary_bytes(layout_.shape()), 1},
                              stage_);
  }

 private:
  const parallel::Layout& layout_;
  const cost::OpPrices& prices_;
  int stage_;
  SlowestOfStage& transfers_;
};

ChunkCost chunk_cost(const parallel::Layout& layout, const Pricer& pricer, int stage, int chunk) {
  ChunkCost cost;
  cost.forward = pricer.sums(Kind::forward, chunk).blocking;
  cost.backward_input = pricer.sums(Kind::backward_input, chunk).blocking;
  cost.backward_weight = pricer.sums(Kind::backward_weight, chunk).blocking;
  cost.halves = layout.run().parallel.schedule == config::ScheduleKind::zero_bubble_h1;
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
                     const cost::OpPrices& prices, SlowestOfStage& transfers) {
  const Pricer pricer(layout, prices, program.stage, transfers);
  StageCost cost;
  for (int c = 0; c < layout.virtual_stages(); ++c) {
    cost.chunks.push_back(chunk_cost(layout, pricer, program.stage, c));
  }
  for (const parallel::Action& action : program.actions) {
    if (action.kind != Kind::unshard || layout.zero() != 3) continue;
    ++cost.chunks[static_cast<size_t>(action.chunk)].unshards;
  }
  cost.load = pricer.sums(Kind::load_batch, -1).blocking.kernels;
  const auto norm = pricer.sums(Kind::gradient_norm, -1);
  cost.norm_kernel = norm.blocking.kernels;
  cost.norm_tp = norm.blocking.tp;
  cost.norm_dp = norm.dp;
  cost.norm_pp = norm.pp;
  cost.message = pricer.message();
  return cost;
}

}  // namespace

BlockingCost StageCost::passes() const {
  BlockingCost sum;
  for (const ChunkCost& chunk : chunks) {
    sum += chunk.forward.waited() + (chunk.halves
                                         ? chunk.backward_input.waited() + chunk.backward_weight.waited()
                                         : chunk.backward().waited());
  }
  return sum;
}

OpSums sum_ops(const std::vector<model::Op>& ops, const cost::OpPrices& prices) {
  OpSums sums;
  for (const model::Op& op : ops) {
    if (cost::is_kernel(op.kind)) sums.kernels += prices.kernel_seconds(op);
    if (!model::is_collective(op.kind)) continue;
    const cost::Transfer transfer{op.kind, op.axis, op.bytes, 0};
    auto known = std::find_if(sums.collectives.begin(), sums.collectives.end(),
                              [&](const auto& one) { return one.transfer == transfer; });
    if (known == sums.collectives.end()) known = sums.collectives.insert(known, {transfer});
    known->times += 1;
    known->waited += prices.waited_share(op);
  }
  return sums;
}

Contention contention_of(cost::TransferPrices& prices, const config::RunFile& run, const parallel::Mesh& mesh,
                         const model::ShardShape& s, int64_t dp_bytes) {
  Contention c;
  c.kernels = run.cluster.communication_slowdown;
  if (mesh.size(Axis::dp_cp) == 1 || dp_bytes == 0) return c;
  const auto pace = [&](const cost::Transfer& of, const cost::Transfer& beside) {
    const double alone = slowest(prices.seconds(of));
    return alone > 0 ? std::max(1.0, slowest(prices.seconds_beside(of, {beside})) / alone) : 1;
  };
  const cost::Transfer dp{model::OpKind::reduce_scatter, Axis::dp_cp, dp_bytes, 0};
  if (s.tp > 1) {
    const auto kind = s.sequence_parallel ? model::OpKind::all_gather : model::OpKind::all_reduce;
    const cost::Transfer tp{kind, Axis::tp, s.tokens * s.hidden * s.element_bytes, 0};
    c.tp = pace(tp, dp);
    c.dp_beside_tp = pace(dp, tp);
  }
  if (s.cp > 1) {
    const int64_t keys = s.tokens_all() * s.kv_width() * s.element_bytes;
    const cost::Transfer cp{model::OpKind::all_gather, Axis::cp, keys, 0};
    c.cp = pace(cp, dp);
    c.dp_beside_cp = pace(dp, cp);
  }
  return c;
}

StepCosts step_costs(const parallel::Layout& layout, const std::vector<parallel::Program>& programs,
                     const cost::OpPrices& prices) {
  SlowestOfStage transfers(layout);
  StepCosts costs;
  for (const parallel::Program& program : programs) {
    costs.stages.push_back(stage_cost(layout, program, prices, transfers));
  }
  const int64_t gradients = layout.padded_chunk_elements(0, 0) * layout.shape().gradient_bytes;
  costs.contention =
      contention_of(transfers.prices(), layout.run(), layout.mesh(), layout.shape(), gradients);
  return costs;
}

}  // namespace lockstep::plan
