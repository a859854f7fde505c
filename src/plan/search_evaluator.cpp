#include "plan/search_evaluator.hpp"

#include <algorithm>

#include "plan/memory.hpp"

namespace lockstep::plan {

namespace {

using config::ScheduleKind;

constexpr size_t first_place = 0, middle_place = 1, last_place = 2;

BlockingCost of_content(const ChunkContents::Content& content, const ByPiece<PricedPasses::Pass>& pieces,
                        BlockingCost PricedPasses::Pass::*pass) {
  BlockingCost cost = static_cast<double>(content.layers) * (pieces[0].*pass);
  if (content.embedding) cost += pieces[1].*pass;
  if (content.head) cost += pieces[2].*pass;
  return cost;
}

// How many chunks of a stage are at each place.
struct Counts {
  std::array<int, chunk_places> of{};
};
Counts counts(int stages, int chunks, size_t stage) {
  Counts c;
  const bool first = stage == first_place, last = stage == last_place || stages == 1;
  c.of[first_place] = first ? 1 : 0;
  c.of[last_place] = last && stages * chunks > 1 ? 1 : 0;
  c.of[middle_place] = chunks - c.of[first_place] - c.of[last_place];
  return c;
}

double host_seconds(const cost::OpPrices& prices, int64_t bytes) {
  if (bytes == 0) return 0;
  model::Op op;
  op.kind = model::OpKind::host;
  op.bytes = bytes;
  return prices.kernel_seconds(op);
}

}  // namespace

PricedPasses::PricedPasses(const config::RunFile& run, const PassTable& passes, MeshPrices& mesh,
                           int64_t dp_bytes)
    : table(passes) {
  pieces.resize(mesh.kinds());
  runs = mesh.runs();
  for (size_t kind = 0; kind < mesh.kinds(); ++kind) {
    for (size_t p = 0; p < piece_kinds; ++p) {
      const PassTable::Passes& ops = passes.passes(static_cast<Piece>(p));
      const auto price = [&](const PassTable::Pass& pass) {
        return mesh.blocking(pass.ops, kind, pass.host);
      };
      pieces[kind][p] = {price(ops.forward), price(ops.backward_input), price(ops.backward_weight)};
    }
  }
  const int64_t boundary = model::boundary_bytes(passes.shape());
  message_bytes = static_cast<double>(boundary);
  message = mesh.seconds({model::OpKind::send, model::Axis::pp, boundary, 1});
  const int64_t tables = plan::table_bytes(run, passes.shape(), 0);
  table_bytes = static_cast<double>(tables + stand_in_bytes(run, passes.shape()));
  table_bytes_of_batch = static_cast<double>(plan::table_bytes(run, passes.shape(), 1) - tables);
  memory_margin = run.software.memory_margin;
  stages = mesh.mesh().size(model::Axis::pp);
  contention = contention_of(mesh.prices(), run, mesh.mesh(), passes.shape(), dp_bytes);
  overlaps_gradients = run.software.overlap_gradients;
  overlaps_parameters = run.software.overlap_parameters;
  reduces_in_place = run.software.reduce_in_place;
}

BatchTimes::BatchTimes(const config::RunFile& run, const cost::OpPrices& prices,
                       const model::ShardShape& shape, int stages, int micro_batches) {
  const int64_t one = int64_t{micro_batches} * shape.tokens * 8;
  const int64_t mask = run.data.document_mask ? one : 0;
  const int64_t ends = mask + (stages == 1 ? 2 * one : one);
  first = last = host_seconds(prices, ends);
  middle = host_seconds(prices, mask);
  if (!prices.reads_ahead()) return;
  model::Op op;
  op.kind = model::OpKind::host;
  op.bytes = ends;
  read = prices.read_seconds(op);
}

Variant::Variant(const PricedPasses& passes, const StateTable& whole, const StateTable& sharded)
    : passes_(&passes), state_{&whole, &sharded} {
  held_bytes_[held_messages] = passes.message_bytes;
  for (size_t p = 0; p < chunk_places; ++p) {
    const ChunkContents::Content& content = whole.contents.at[p];
    const auto place = static_cast<ChunkPlace>(p);
    held_bytes_[held_at(Held::live, place)] = passes.table.live(content);
    held_bytes_[held_at(Held::stashed, place)] = passes.table.stash(content);
    held_bytes_[held_at(Held::gradients, place)] = whole.gradients[p];
    held_bytes_[held_at(Held::gathered, place)] = whole.weights[p];
    held_bytes_[held_at(Held::norms, place)] = whole.norms[p];
    for (size_t r = 0; r + 1 < running_kinds; ++r) {
      peaks_[p][r] = passes.table.peak(content, static_cast<Running>(r));
    }
    peaks_[p][running_kinds - 1] = whole.packed[p];
  }
  costs_.resize(passes.pieces.size());
  for (size_t kind = 0; kind < costs_.size(); ++kind) {
    for (size_t p = 0; p < chunk_places; ++p) cost_chunk(costs_[kind], kind, p);
  }
}

void Variant::cost_chunk(Costs& of, size_t kind, size_t place) const {
  Overlap overlap;
  overlap.stages = passes_->stages;
  overlap.message = passes_->message;
  overlap.contention = passes_->contention;
  const ChunkContents::Content& content = state_[0]->contents.at[place];
  const ByPiece<PricedPasses::Pass>& pieces = passes_->pieces[kind];
  for (size_t z = 0; z < 2; ++z) {
    ChunkCost& cost = of.chunks[z][place];
    cost = state_[z]->chunks[kind][place];  // its passes have the host's time
    cost.forward += of_content(content, pieces, &PricedPasses::Pass::forward);
    cost.backward_input += of_content(content, pieces, &PricedPasses::Pass::backward_input);
    cost.backward_weight += of_content(content, pieces, &PricedPasses::Pass::backward_weight);
    for (const bool halves : {false, true}) {
      cost.halves = halves;
      of.times[halves ? 1 : 0][z][place] = chunk_times(overlap, cost, false);
    }
  }
}

// Writes the chunks of a stage, those of its first and of its others apart where gathers make them differ;
// how many that are.
size_t Variant::add_stage(const PipelineChoice& c, const MeshPrices::Run& run, const StageMoments& moments,
                          ChunkTimes* times) const {
  const size_t sharded = c.zero > 0 ? 1 : 0;
  const bool halves = c.schedule == ScheduleKind::zero_bubble_h1;
  const Costs& costs = costs_[run.kind];
  const Counts in_stage = counts(c.stages, c.chunks, static_cast<size_t>(run.place));
  size_t used = 0;
  if (c.zero < 3 && !c.scatters_every_micro_batch) {
    for (size_t p = 0; p < chunk_places; ++p) {
      if (in_stage.of[p] == 0) continue;
      times[used] = costs.times[halves ? 1 : 0][sharded][p];
      times[used++].count = in_stage.of[p];
    }
    return used;
  }
  const Overlap overlap{
      c.schedule, c.stages,   c.chunks,         c.micro_batches,    c.scatters_every_micro_batch,
      c.zero < 2, c.reshards, passes_->message, passes_->contention};
  bool first = true;
  for (size_t p = 0; p < chunk_places; ++p) {
    int left = in_stage.of[p];
    if (left == 0) continue;
    ChunkCost cost = costs.chunks[sharded][p];
    cost.halves = halves;
    if (c.zero == 3) cost.unshards = moments.unshards[p];
    if (c.scatters_every_micro_batch) cost.reductions = c.micro_batches;
    if (first && left > 1) {
      times[used++] = chunk_times(overlap, cost, true, 1);
      first = false;
      --left;
    }
    times[used++] = chunk_times(overlap, cost, first, left);
    first = false;
  }
  return used;
}

double Variant::seconds(const PipelineChoice& c, const PipelineMoments& moments, const BatchTimes& batch,
                        Scratch& scratch) const {
  const StateTable& state = *state_[c.zero > 0 ? 1 : 0];
  const std::vector<MeshPrices::Run>& runs = passes_->runs;
  constexpr size_t most_a_stage = 4;  // chunks that differ
  if (scratch.stages.size() < runs.size()) {
    scratch.stages.resize(runs.size());
    scratch.chunks.resize(most_a_stage * runs.size());
  }
  const std::array<const StageMoments*, chunk_places> of_place = {&moments.first, &moments.middle,
                                                                  &moments.last};
  const std::array<double, chunk_places> load = {batch.first, batch.middle, batch.last};
  for (size_t r = 0; r < runs.size(); ++r) {
    const auto place = static_cast<size_t>(runs[r].place);
    ChunkTimes* times = scratch.chunks.data() + most_a_stage * r;
    const size_t used = add_stage(c, runs[r], *of_place[place], times);
    scratch.stages[r] = {runs[r].count, std::span(times, used), load[place], state.norm[r], state.norm_pp};
  }
  const bool gathers = c.zero == 1 || c.zero == 2;
  const StepShape shape{c.schedule,
                        c.stages,
                        c.chunks,
                        c.micro_batches,
                        c.zero == 3,
                        gathers && passes_->overlaps_parameters,
                        gathers && !passes_->overlaps_parameters,
                        passes_->overlaps_gradients,
                        passes_->message,
                        std::span(scratch.stages.data(), runs.size())};
  return std::max(batch.read, step_seconds(shape));
}

double Variant::peak(const StageMoments& stage) const {
  constexpr size_t wide = StageMoments::wide;
  const size_t columns = stage.columns.size();
  std::array<double, held_counts> bytes;
  for (size_t c = 0; c < columns; ++c) bytes[c] = held_bytes_[stage.columns[c]];
  const double* counts = stage.counts.data();
  double most = 0;
  for (const Moment& m : stage.moments) {
    std::array<double, wide> sums{};
    for (size_t c = 0; c < columns; c += wide) {
      for (size_t j = 0; j < wide; ++j) sums[j] += counts[c + j] * bytes[c + j];
    }
    counts += columns;
    const double running = peaks_[static_cast<size_t>(m.of)][static_cast<size_t>(m.running)];
    most = std::max(most, sums[0] + sums[1] + (sums[2] + sums[3]) + running);
  }
  return most;
}

std::array<double, chunk_places> Variant::peaks(const PipelineChoice& c,
                                                const PipelineMoments& moments) const {
  std::array<double, chunk_places> out = {peak(moments.first), c.stages > 2 ? peak(moments.middle) : 0,
                                          c.stages > 1 ? peak(moments.last) : 0};
  if (moments.with_group == nullptr) return out;
  const std::array<double, chunk_places> more = peaks(c, *moments.with_group);
  for (size_t p = 0; p < chunk_places; ++p) out[p] += moments.groups * (more[p] - out[p]);
  return out;
}

double Variant::bytes(const PipelineChoice& c, const std::array<double, chunk_places>& peaks) const {
  const StateTable& state = *state_[c.zero > 0 ? 1 : 0];
  const ByPlace& weights = c.zero == 3 ? state.shards : state.weights;
  const bool in_place = passes_->reduces_in_place && c.zero < 2;
  double most = 0;
  for (size_t stage = 0; stage < chunk_places; ++stage) {
    if ((stage == middle_place && c.stages <= 2) || (stage == last_place && c.stages == 1)) continue;
    const Counts in_stage = counts(c.stages, c.chunks, stage);
    double held = peaks[stage];
    for (size_t p = 0; p < chunk_places; ++p) {
      const double reduced = in_place ? 0 : state.reduced[p];
      held += in_stage.of[p] * (state.own[p] + reduced + weights[p]);
    }
    most = std::max(most, held);
  }
  most += passes_->table_bytes + c.micro_batches * passes_->table_bytes_of_batch;
  return (1 + passes_->memory_margin) * most;
}

}  // namespace lockstep::plan
