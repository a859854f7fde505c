#include "parallel/layout.hpp"

namespace lockstep::parallel {

namespace {

std::vector<model::ChunkContent> cut_layers(const config::RunFile& run) {
  const config::ParallelConfig& p = run.parallel;
  const int64_t chunks = p.pp * p.virtual_stages;
  const int64_t each = (run.model.layers + p.first_stage_less_layers + p.last_stage_less_layers) / chunks;
  std::vector<model::ChunkContent> out;
  int64_t next = 0;
  for (int64_t c = 0; c < chunks; ++c) {
    int64_t layers = each;
    if (c == 0) layers -= p.first_stage_less_layers;
    if (c == chunks - 1) layers -= p.last_stage_less_layers;
    out.push_back({next, layers, c == 0, c == chunks - 1});
    next += layers;
  }
  return out;
}

}  // namespace

Layout::Layout(const config::RunFile& run)
    : run_(run),
      mesh_(run.parallel),
      layers_{model::shard_shape(run), model::recompute_of(run.parallel)},
      chunks_(cut_layers(run)) {}

const model::ChunkContent& Layout::chunk(int stage, int chunk) const {
  return chunks_[static_cast<size_t>(chunk * stages() + stage)];
}

int64_t Layout::chunk_elements(int stage, int chunk_index) const {
  return model::local_parameter_count(run_.model, chunk(stage, chunk_index), run_.parallel.tp);
}

int64_t Layout::shard_elements(int stage, int chunk_index) const {
  const int64_t dp = run_.parallel.dp;
  return (chunk_elements(stage, chunk_index) + dp - 1) / dp;
}

int64_t Layout::padded_chunk_elements(int stage, int chunk_index) const {
  return shard_elements(stage, chunk_index) * run_.parallel.dp;
}

Schedule Layout::schedule() const {
  return build_schedule(run_.parallel.schedule, stages(), virtual_stages(), micro_batches());
}

}  // namespace lockstep::parallel
