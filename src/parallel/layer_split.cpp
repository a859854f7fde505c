#include "parallel/layer_split.hpp"

#include <algorithm>

namespace lockstep::parallel {

namespace {

// FLOPs of a token, forward and backward; see model::flops_per_token (attention causal).
struct Costs {
  double layer = 0;
  double head = 0;
};

Costs costs_of(const config::RunFile& run) {
  const config::ModelConfig& m = run.model;
  double layer = 0;
  for (const model::Parameter& p : model::chunk_parameters(m, {0, 1, false, false})) {
    if (p.family == model::Family::matrix) layer += 6.0 * static_cast<double>(p.count());
  }
  layer += 6.0 * static_cast<double>(m.hidden) * static_cast<double>(run.train.sequence);
  const auto& recompute = run.parallel.recompute;
  if (std::find(recompute.begin(), recompute.end(), "full") != recompute.end()) {
    layer *= 1 + 1.0 / (3.0 * static_cast<double>(run.parallel.recompute_every));
  }
  return {layer, 6.0 * static_cast<double>(m.vocab) * static_cast<double>(m.hidden)};
}

std::vector<int64_t> even_counts(const config::RunFile& run) {
  const config::ParallelConfig& p = run.parallel;
  const int64_t chunks = p.pp * p.virtual_stages;
  const int64_t each = (run.model.layers + p.first_stage_less_layers + p.last_stage_less_layers) / chunks;
  std::vector<int64_t> counts(static_cast<size_t>(chunks), each);
  counts.front() -= p.first_stage_less_layers;
  counts.back() -= p.last_stage_less_layers;
  return counts;
}

// One layer after another to the stage that is cheapest so far: with equal layers no split has a cheaper
// costliest stage. Of equal stages the later, which holds fewer micro-batches' activations.
std::vector<int64_t> counts_by_cost(const config::RunFile& run) {
  const auto stages = static_cast<size_t>(run.parallel.pp);
  const auto chunks_each = static_cast<size_t>(run.parallel.virtual_stages);
  const Costs costs = costs_of(run);
  std::vector<double> cost(stages, 0.0);
  std::vector<int64_t> layers(stages, 0);
  cost.back() += costs.head;
  for (int64_t i = 0; i < run.model.layers; ++i) {
    size_t cheapest = stages - 1;
    for (size_t s = stages - 1; s-- > 0;) {
      if (cost[s] < cost[cheapest]) cheapest = s;
    }
    cost[cheapest] += costs.layer;
    ++layers[cheapest];
  }
  std::vector<int64_t> counts(stages * chunks_each);
  for (size_t s = 0; s < stages; ++s) {
    const int64_t each = layers[s] / static_cast<int64_t>(chunks_each);
    const auto more = static_cast<size_t>(layers[s] % static_cast<int64_t>(chunks_each));
    for (size_t c = 0; c < chunks_each; ++c) {
      // Those with one more are the last of the first stage, whose first chunk has the embedding, and the
      // first of the others.
      const bool one_more = s == 0 ? c >= chunks_each - more : c < more;
      counts[c * stages + s] = each + (one_more ? 1 : 0);
    }
  }
  return counts;
}

}  // namespace

std::vector<model::ChunkContent> split_layers(const config::RunFile& run) {
  const std::vector<int64_t> counts =
      run.parallel.layer_split == config::LayerSplit::cost ? counts_by_cost(run) : even_counts(run);
  std::vector<model::ChunkContent> out;
  int64_t next = 0;
  const bool one_rank = run.parallel.pp == 1 && run.model.tie_embeddings && counts.size() > 1;
  for (size_t c = 0; c < counts.size(); ++c) {
    const bool first = c == 0, last = c + 1 == counts.size();
    out.push_back({next, counts[c], first, last, one_rank && (first || last)});
    next += counts[c];
  }
  return out;
}

}  // namespace lockstep::parallel
