#include "parallel/layout.hpp"

#include <algorithm>
#include <bit>

#include "parallel/layer_split.hpp"

namespace lockstep::parallel {

Segment make_segment(int64_t elements, int64_t ranks) {
  constexpr int64_t least = 64, most_blocks = 65536;
  const auto wanted = static_cast<uint64_t>(std::max<int64_t>((elements + most_blocks - 1) / most_blocks, 1));
  Segment segment{elements, 0, ranks, std::max(least, static_cast<int64_t>(std::bit_ceil(wanted)))};
  segment.shard = (segment.blocks() + ranks - 1) / ranks * segment.block;
  return segment;
}

Layout::Layout(const config::RunFile& run)
    : run_(run),
      mesh_(run),
      layers_{model::shard_shape(run), model::recompute_of(run.parallel)},
      chunks_(split_layers(run)) {}

const model::ChunkContent& Layout::chunk(int stage, int chunk) const {
  return chunks_[static_cast<size_t>(chunk * stages() + stage)];
}

int64_t Layout::chunk_elements(int stage, int chunk_index) const {
  return model::local_parameter_count(run_.model, chunk(stage, chunk_index), run_.parallel.tp);
}

bool Layout::has_tied_copy(int stage, int chunk_index) const {
  return model::tied_parameter_count(run_.model, chunk(stage, chunk_index), run_.parallel.tp) > 0;
}

std::vector<Segment> Layout::segments(int stage, int chunk_index) const {
  const int64_t ranks = mesh_.size(Axis::dp_cp);
  const int64_t tied = model::tied_parameter_count(run_.model, chunk(stage, chunk_index), run_.parallel.tp);
  std::vector<Segment> segments;
  for (const int64_t elements : {chunk_elements(stage, chunk_index) - tied, tied}) {
    if (elements > 0) segments.push_back(make_segment(elements, ranks));
  }
  return segments;
}

int64_t Layout::padded_chunk_elements(int stage, int chunk_index) const {
  int64_t elements = 0;
  for (const Segment& segment : segments(stage, chunk_index)) elements += segment.padded();
  return elements;
}

int64_t Layout::state_elements(int stage, int chunk_index) const {
  int64_t elements = 0;
  for (const Segment& segment : segments(stage, chunk_index)) {
    elements += zero() == 0 ? segment.padded() : segment.shard;
  }
  return elements;
}

Schedule Layout::schedule() const {
  return build_schedule(run_.parallel.schedule, stages(), virtual_stages(), micro_batches());
}

}  // namespace lockstep::parallel
