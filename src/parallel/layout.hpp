// A run's layout: the mesh, and which part of the model each pipeline position holds.
#pragma once

#include <vector>

#include "config/run_file.hpp"
#include "model/layer_program.hpp"
#include "parallel/mesh.hpp"
#include "parallel/schedule.hpp"

namespace lockstep::parallel {

class Layout {
 public:
  // `run` has passed config's rules.
  explicit Layout(const config::RunFile& run);

  const config::RunFile& run() const { return run_; }
  const Mesh& mesh() const { return mesh_; }
  int stages() const { return mesh_.size(Axis::pp); }
  int virtual_stages() const { return static_cast<int>(run_.parallel.virtual_stages); }
  int micro_batches() const { return static_cast<int>(run_.micro_batches()); }

  // What local chunk `chunk` of pipeline position `stage` holds.
  const model::ChunkContent& chunk(int stage, int chunk) const;
  bool has_embedding(int stage) const { return stage == 0; }
  bool has_head(int stage) const { return stage == stages() - 1; }

  const model::LayerProgram& layers() const { return layers_; }
  const model::ShardShape& shape() const { return layers_.shape; }

  // Elements of a chunk on one tensor-parallel rank, and the same rounded up so that dp shards are equal: the
  // flat buffers of parameters and gradients have this length, the rest stays zero.
  int64_t chunk_elements(int stage, int chunk) const;
  int64_t padded_chunk_elements(int stage, int chunk) const;
  int64_t shard_elements(int stage, int chunk) const;

  Schedule schedule() const;

 private:
  config::RunFile run_;
  Mesh mesh_;
  model::LayerProgram layers_;
  std::vector<model::ChunkContent> chunks_;  // by global chunk: chunk x stages + stage
};

}  // namespace lockstep::parallel
