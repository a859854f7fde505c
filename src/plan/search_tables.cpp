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
void PassTable::find_peaks(const config::RunFile& run) {
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
  find_peaks_of_many(run);
}

// The first half of a backward keeps more with each layer, for the second: with many layers its last one can
// be fuller than the head, which comes first.
void PassTable::find_peaks_of_many(const config::RunFile& run) {
  const int64_t many = std::max<int64_t>(run.model.layers, 3);
  const auto half = static_cast<size_t>(Running::backward_input);
  const auto add = [&](size_t kind, int64_t stages, int stage) {
    const auto peak = [&](int64_t layers) {
      const parallel::Layout layout(cut(run, stages * layers, stages, 0));
      return static_cast<double>(pass_memory(layout, stage, Kind::backward_input, 0).peak);
    };
    Line& line = peaks_[kind][half];
    const double fullest = peak(many);
    if (fullest <= line.one + static_cast<double>(many - 1) * line.further) return;
    line.each_of_many = fullest - peak(many - 1);
    line.many = fullest - static_cast<double>(many) * line.each_of_many;
  };
  add(0, 3, 1);
  add(1, 3, 0);
  add(2, 3, 2);
  add(3, 1, 0);
}

double PassTable::peak(const ChunkContents::Content& content, Running running) const {
  const size_t kind = (content.embedding ? 1 : 0) + (content.head ? 2 : 0);
  const Line& line = peaks_[kind][static_cast<size_t>(running)];
  if (content.layers == 0) return line.none;
  return std::max(line.one + (content.layers - 1) * line.further,
                  line.many + content.layers * line.each_of_many);
}

MeshPrices::MeshPrices(config::RunFile run)
    : mesh_(run), prices_((run.simulate.slow_links.clear(), run), mesh_) {
  find_kinds();
}

const MeshPrices::KindsOfStages& MeshPrices::kinds_of_stages(const cost::RankSeconds& seconds) {
  const auto [known, is_new] = by_kind_of_.try_emplace(seconds.kind_of());
  KindsOfStages& kinds = known->second;
  if (!is_new) return kinds;
  kinds.resize(static_cast<size_t>(mesh_.size(Axis::pp)));
  std::vector<std::vector<bool>> has(kinds.size(), std::vector<bool>(seconds.kinds().size()));
  for (int rank = 0; rank < mesh_.size(); ++rank) {
    const auto stage = static_cast<size_t>(mesh_.coordinates(rank).pp);
    const int kind = (*seconds.kind_of())[static_cast<size_t>(rank)];
    if (has[stage][static_cast<size_t>(kind)]) continue;
    has[stage][static_cast<size_t>(kind)] = true;
    kinds[stage].push_back(kind);
  }
  for (std::vector<int>& of_stage : kinds) std::sort(of_stage.begin(), of_stage.end());
  return kinds;
}

// By the groups of those collectives of which a stage waits for its own: of a typical size, as rings (and
// trees, where there are).
void MeshPrices::find_kinds() {
  constexpr int64_t bytes = 1 << 20;
  const int stages = mesh_.size(Axis::pp);
  std::vector<std::vector<int>> signatures(static_cast<size_t>(stages));
  const auto probe = [&](model::OpKind kind, Axis axis) {
    if (mesh_.size(axis) == 1) return;
    const cost::RankSeconds& seconds = prices_.seconds({kind, axis, bytes, 0});
    if (seconds.is_same_for_all()) return;
    const KindsOfStages& kinds = kinds_of_stages(seconds);
    for (size_t s = 0; s < signatures.size(); ++s) {
      signatures[s].insert(signatures[s].end(), kinds[s].begin(), kinds[s].end());
      signatures[s].push_back(-1);
    }
  };
  for (const Axis axis : {Axis::tp, Axis::tp_kv, Axis::cp, Axis::dp_cp}) {
    probe(model::OpKind::all_gather, axis);
    if (axis == Axis::tp || axis == Axis::tp_kv) probe(model::OpKind::all_reduce, axis);
  }
  std::map<std::vector<int>, size_t> known;
  for (int stage = 0; stage < stages; ++stage) {
    const auto [found, is_new] =
        known.try_emplace(signatures[static_cast<size_t>(stage)], stage_of_kind_.size());
    if (is_new) stage_of_kind_.push_back(stage);
    const ChunkPlace place = stage == 0            ? ChunkPlace::first
                             : stage + 1 == stages ? ChunkPlace::last
                                                   : ChunkPlace::middle;
    if (!runs_.empty() && runs_.back().place == place && runs_.back().kind == found->second) {
      ++runs_.back().count;
    } else {
      runs_.push_back({stage, 1, place, found->second});
    }
  }
}

double MeshPrices::seconds(const cost::Transfer& transfer) {
  const std::vector<double>& kinds = prices_.seconds(transfer).kinds();
  return *std::max_element(kinds.begin(), kinds.end());
}

double MeshPrices::seconds(const cost::Transfer& transfer, size_t kind) {
  const cost::RankSeconds& seconds = prices_.seconds(transfer);
  if (seconds.is_same_for_all()) return seconds.kinds().front();
  double longest = 0;
  for (const int one : kinds_of_stages(seconds)[static_cast<size_t>(stage_of_kind_[kind])]) {
    longest = std::max(longest, seconds.kinds()[static_cast<size_t>(one)]);
  }
  return longest;
}

BlockingCost MeshPrices::blocking(const OpSums& ops, size_t kind, double host) {
  BlockingCost cost{.kernels = ops.kernels, .host = host};
  for (const auto& [transfer, times, waited] : ops.collectives) {
    const double one = seconds(transfer, kind);
    if (transfer.axis == Axis::tp || transfer.axis == Axis::tp_kv) {
      cost.tp += waited * one;
      cost.tp_hidden += (times - waited) * one;
    }
    if (transfer.axis == Axis::cp) cost.cp += waited * one;
  }
  return cost;
}

struct StateTable::Sample {
  int stage = 0, chunk = 0;
  size_t place = 0;
};

StateTable::StateTable(const parallel::Layout& layout, const cost::OpPrices& prices, MeshPrices& mesh)
    : chunks(mesh.kinds()) {
  const int stages = layout.stages(), virtual_stages = layout.virtual_stages();
  std::vector<Sample> samples = {{0, 0, 0}};
  if (stages * virtual_stages > 2) samples.push_back({stages > 2 ? 1 : 0, stages > 2 ? 0 : 1, 1});
  if (stages * virtual_stages > 1) samples.push_back({stages - 1, virtual_stages - 1, 2});
  for (const Sample& sample : samples) {
    add_costs(layout, prices, mesh, sample);
    add_bytes(layout, sample);
  }
  add_norms(layout, prices, mesh);
}

void StateTable::add_costs(const parallel::Layout& layout, const cost::OpPrices& prices, MeshPrices& mesh,
                           const Sample& sample) {
  const auto ops = [&](Kind kind) {
    return sum_ops(parallel::action_ops(layout, sample.stage, {kind, sample.chunk}), prices);
  };
  const OpSums reduction = ops(Kind::reduce_gradients);
  const OpSums gradients_gather = layout.zero() == 0 ? ops(Kind::gather_gradients) : OpSums{};
  const OpSums parameters = layout.zero() > 0 ? ops(Kind::gather_parameters) : OpSums{};
  const double update = ops(Kind::optimizer_step).kernels;
  double tied = 0;  // both ends are in it: no stage waits less than the other
  if (layout.has_tied_copy(sample.stage, sample.chunk)) {
    for (const auto& [transfer, times, waited] : ops(Kind::sum_tied_gradients).collectives) {
      if (transfer.axis == Axis::pp_ends) tied += waited * mesh.seconds(transfer);
    }
  }
  for (size_t kind = 0; kind < chunks.size(); ++kind) {
    const auto over_dp = [&](const OpSums& sums) {
      double seconds = 0;
      for (const auto& [transfer, times, waited] : sums.collectives) {
        if (transfer.axis == Axis::dp_cp) seconds += waited * mesh.seconds(transfer, kind);
      }
      return seconds;
    };
    ChunkCost& cost = chunks[kind][sample.place];
    cost.forward.host = prices.host_seconds(Kind::forward, {});
    cost.backward_input.host = prices.host_seconds(Kind::backward_input, {});
    cost.backward_weight.host = prices.host_seconds(Kind::backward_weight, {});
    cost.reduce = mesh.blocking(reduction, kind);
    cost.reduce_dp = over_dp(reduction);
    cost.gather_gradients = over_dp(gradients_gather);
    cost.sum_tied = tied;
    cost.update = update;
    cost.gather = over_dp(parameters);
  }
}

void StateTable::add_bytes(const parallel::Layout& layout, const Sample& sample) {
  const auto [stage, chunk, p] = sample;
  const model::ShardShape& s = layout.shape();
  const model::ChunkContent& content = layout.chunk(stage, chunk);
  contents.at[p] = {static_cast<int>(content.layers), content.embedding, content.head};
  const double padded = static_cast<double>(layout.padded_chunk_elements(stage, chunk));
  const double state = static_cast<double>(layout.state_elements(stage, chunk));
  const double element = static_cast<double>(s.element_bytes),
               gradient = static_cast<double>(s.gradient_bytes);
  weights[p] = padded * element;
  shards[p] = state * element;
  gradients[p] = padded * gradient;
  const double states = 1 + static_cast<double>(config::optimizer_moments(layout.run().train));
  own[p] = state * static_cast<double>(s.state_bytes) * states;
  reduced[p] = layout.reduces_in_place() ? 0 : state * gradient;
  norms[p] = static_cast<double>(waiting_norm_bytes(layout, stage, chunk));
  if (s.kv_copies > 1) {
    packed[p] = gradient * static_cast<double>(model::kv_parameter_count(layout.run().model, content, s.tp));
  }
}

void StateTable::add_norms(const parallel::Layout& layout, const cost::OpPrices& prices, MeshPrices& mesh) {
  for (const MeshPrices::Run& run : mesh.runs()) {
    const OpSums ops = sum_ops(parallel::action_ops(layout, run.stage, {Kind::gradient_norm}), prices);
    norm.push_back(ops.kernels);
    norm_pp = 0;
    for (const auto& [transfer, times, waited] : ops.collectives) {
      const double seconds = waited * mesh.seconds(transfer, run.kind);
      (transfer.axis == Axis::pp ? norm_pp : norm.back()) += seconds;
    }
  }
}

}  // namespace lockstep::plan
