#include "plan/search_tables.hpp"

#include <algorithm>

#include "config/optimizer_state.hpp"
#include "plan/pass_memory.hpp"

namespace lockstep::plan {

namespace {

using Kind = parallel::ActionKind;
using model::Axis;

constexpr std::array<Kind, 4> passes_by_running = {Kind::forward, Kind::backward, Kind::backward_input,
                                                   Kind::backward_weight};

model::ChunkContent content_of(Piece piece) {
  return {0, piece == Piece::layer ? 1 : 0, piece == Piece::embedding, piece == Piece::head};
}

config::RunFile cut(config::RunFile run, int64_t layers, int64_t stages, int64_t less) {
  run.model.layers = layers;
  config::ParallelConfig& p = run.parallel;
  p.pp = stages;
  p.dp = p.virtual_stages = 1;
  p.replicas = 0;
  p.schedule = config::ScheduleKind::one_f_one_b;
  p.first_stage_less_layers = p.last_stage_less_layers = less;
  p.layer_split = config::LayerSplit::even;
  p.zero = 1;
  run.train.global_batch = p.micro_batch;
  return run;
}

// A chunk at each place that the layout has.
struct Sample {
  int stage = -1, chunk = 0;
};
std::array<Sample, chunk_places> samples(const parallel::Layout& layout) {
  const int stages = layout.stages(), chunks = layout.virtual_stages();
  std::array<Sample, chunk_places> out;
  out[0] = {0, 0};
  if (stages * chunks > 2) out[1] = stages > 2 ? Sample{1, 0} : Sample{0, 1};
  if (stages * chunks > 1) out[2] = {stages - 1, chunks - 1};
  return out;
}

}  // namespace

PassTable::PassTable(const config::RunFile& run, const cost::OpPrices& prices) {
  const model::LayerProgram layers{model::shard_shape(run), model::recompute_of(run.parallel)};
  shape_ = layers.shape;
  for (size_t p = 0; p < piece_kinds; ++p) {
    const model::ChunkContent content = content_of(static_cast<Piece>(p));
    const auto pass = [&](Kind kind, const std::vector<model::Op>& ops) {
      return Pass{sum_ops(ops, prices), prices.host_seconds(kind, ops)};
    };
    passes_[p] = {pass(Kind::forward, layers.chunk_forward(content)),
                  pass(Kind::backward_input, layers.chunk_backward_input(content)),
                  pass(Kind::backward_weight, layers.chunk_backward_weight(content))};
    live_[p] = static_cast<double>(model::chunk_activation_bytes(shape_, layers.recompute, content));
    stash_[p] = static_cast<double>(model::chunk_stash_bytes(shape_, layers.recompute, content));
  }
  find_peaks(run);
}

// From chunks of no layer, one and two: each further layer adds as much as the second does.
void PassTable::find_peaks(config::RunFile run) {
  const parallel::Layout without(cut(run, 1, 3, 1)), one(cut(run, 3, 3, 0)), two(cut(run, 6, 3, 0));
  const parallel::Layout whole_one(cut(run, 1, 1, 0)), whole_two(cut(run, 2, 1, 0));
  for (size_t r = 0; r < passes_by_running.size(); ++r) {
    const auto peak = [&](const parallel::Layout& layout, int stage) {
      return static_cast<double>(pass_memory(layout, stage, passes_by_running[r], 0).peak);
    };
    const auto line = [&](const parallel::Layout& first, const parallel::Layout& second, int stage) {
      return Line{0, peak(first, stage), std::max(0.0, peak(second, stage) - peak(first, stage))};
    };
    peaks_[0][r] = line(one, two, 1);
    peaks_[1][r] = line(one, two, 0);
    peaks_[2][r] = line(one, two, 2);
    peaks_[3][r] = line(whole_one, whole_two, 0);
    peaks_[1][r].none = peak(without, 0);
    peaks_[2][r].none = peak(without, 2);
  }
}

double PassTable::peak(const ChunkContents::Content& content, Running running) const {
  const size_t kind = (content.embedding ? 1 : 0) + (content.head ? 2 : 0);
  const Line& line = peaks_[kind][static_cast<size_t>(running)];
  return content.layers == 0 ? line.none : line.one + (content.layers - 1) * line.further;
}

MeshPrices::MeshPrices(config::RunFile run)
    : mesh_(run), prices_((run.simulate.slow_links.clear(), run), mesh_) {}

double MeshPrices::seconds(const cost::Transfer& transfer) {
  const std::vector<double>& kinds = prices_.seconds(transfer).kinds();
  return *std::max_element(kinds.begin(), kinds.end());
}

BlockingCost MeshPrices::blocking(const OpSums& ops, double host) {
  BlockingCost cost{ops.kernels, 0, 0, host};
  for (const auto& [transfer, times] : ops.collectives) {
    if (transfer.axis == Axis::tp || transfer.axis == Axis::tp_kv) cost.tp += times * seconds(transfer);
    if (transfer.axis == Axis::cp) cost.cp += times * seconds(transfer);
  }
  return cost;
}

StateTable::StateTable(const parallel::Layout& layout, const cost::OpPrices& prices, MeshPrices& mesh) {
  const auto along = [&](const OpSums& ops, Axis one, Axis other) {
    double sum = 0;
    for (const auto& [transfer, times] : ops.collectives) {
      if (transfer.axis == one || transfer.axis == other) sum += times * mesh.seconds(transfer);
    }
    return sum;
  };
  const model::ShardShape& s = layout.shape();
  const auto found = samples(layout);
  for (size_t p = 0; p < chunk_places; ++p) {
    const auto [stage, chunk] = found[p];
    if (stage < 0) continue;
    const auto ops = [&, stage = stage, chunk = chunk](Kind kind) {
      return sum_ops(parallel::action_ops(layout, stage, {kind, chunk}), prices);
    };
    const model::ChunkContent& content = layout.chunk(stage, chunk);
    contents.at[p] = {static_cast<int>(content.layers), content.embedding, content.head};
    const OpSums reduction = ops(Kind::reduce_gradients);
    ChunkCost& cost = chunks[p];
    cost.forward.host = prices.host_seconds(Kind::forward, {});
    cost.backward_input.host = prices.host_seconds(Kind::backward_input, {});
    cost.backward_weight.host = prices.host_seconds(Kind::backward_weight, {});
    cost.reduce = mesh.blocking(reduction);
    cost.reduce_dp = along(reduction, Axis::dp_cp, Axis::dp_cp);
    cost.update = ops(Kind::optimizer_step).kernels;
    if (layout.has_tied_copy(stage, chunk)) {
      cost.sum_tied = along(ops(Kind::sum_tied_gradients), Axis::pp, Axis::pp_ends);
    }
    if (layout.zero() == 0)
      cost.gather_gradients = along(ops(Kind::gather_gradients), Axis::dp_cp, Axis::dp_cp);
    if (layout.zero() > 0) cost.gather = along(ops(Kind::gather_parameters), Axis::dp_cp, Axis::dp_cp);

    const double padded = static_cast<double>(layout.padded_chunk_elements(stage, chunk));
    const double state = static_cast<double>(layout.state_elements(stage, chunk));
    const double element = static_cast<double>(s.element_bytes),
                 gradient = static_cast<double>(s.gradient_bytes);
    const double sums = layout.reduces_in_place() ? 0 : 1;
    weights[p] = padded * element;
    shards[p] = state * element;
    gradients[p] = padded * gradient;
    const double states = 1 + static_cast<double>(config::optimizer_moments(layout.run().train));
    own[p] = state * static_cast<double>(s.state_bytes) * states;
    reduced[p] = state * gradient * sums;
    norms[p] = static_cast<double>(waiting_norm_bytes(layout, stage, chunk));
    if (s.kv_copies > 1) {
      packed[p] =
          gradient * static_cast<double>(model::kv_parameter_count(layout.run().model, content, s.tp));
    }
  }
  const std::array<int, chunk_places> stages = {0, std::min(1, layout.stages() - 1), layout.stages() - 1};
  for (size_t p = 0; p < chunk_places; ++p) {
    const OpSums ops = sum_ops(parallel::action_ops(layout, stages[p], {Kind::gradient_norm}), prices);
    norm[p] = ops.kernels + along(ops, Axis::dp_cp, Axis::tp);
    norm_pp = along(ops, Axis::pp, Axis::pp);
  }
}

}  // namespace lockstep::plan
