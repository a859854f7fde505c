// A run's layout: the mesh, and which part of the model each pipeline position holds.
#pragma once

#include <vector>

#include "config/run_file.hpp"
#include "model/layer_program.hpp"
#include "parallel/mesh.hpp"
#include "parallel/schedule.hpp"

namespace lockstep::parallel {

// A part of a flat buffer that is sharded by itself.
struct Segment {
  int64_t elements = 0;  // of parameters; padding follows
  int64_t shard = 0;     // elements of one rank's share, whole blocks
  int64_t ranks = 1;     // that share it
  // Sums over gradients are taken block by block, so that no cut into shards changes them.
  int64_t block = 1;

  int64_t padded() const { return shard * ranks; }
  int64_t blocks() const { return (elements + block - 1) / block; }
};

// At most 65,536 blocks, and at least 64 elements each.
Segment make_segment(int64_t elements, int64_t ranks);

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

  // A chunk's parameters lie in one flat buffer of at most two segments, one after another: all but a tied
  // embedding whose other copy another stage holds, and that; none for a chunk without parameters. Each
  // segment is cut into equal shards, one for each rank of dp_cp.
  std::vector<Segment> segments(int stage, int chunk) const;
  int64_t chunk_elements(int stage, int chunk) const;  // on one tensor-parallel rank
  int64_t padded_chunk_elements(int stage,
                                int chunk) const;  // length of the flat buffer; the rest stays zero
  // Elements whose reduced gradient, master weight and moments a rank holds: its shards, or with zero = 0
  // all.
  int64_t state_elements(int stage, int chunk) const;

  int zero() const { return static_cast<int>(run_.parallel.zero); }
  int rounds() const { return static_cast<int>(run_.parallel.rounds()); }
  // Micro-batches of one logical replica; micro_batches() is that for all that a worker computes.
  int replica_micro_batches() const { return static_cast<int>(run_.replica_micro_batches()); }
  // Whether gradients are scattered at every micro-batch instead of once for each chunk and round.
  bool scatters_every_micro_batch() const {
    return run_.parallel.gradient_scatter == config::GradientScatter::micro_batch;
  }
  // Whether a chunk's buffer of unreduced gradients lives through the whole step; else from a backward to the
  // end of its reduction.
  bool gradients_persist() const { return zero() <= 1 && rounds() == 1; }
  // Whether a reduction adds to what earlier ones have summed, replicas in ascending order whatever dp is. A
  // gradient is never -0 (it starts from +0), so adding to zero does not change a bit of the first.
  bool accumulates_reductions() const { return rounds() > 1 || scatters_every_micro_batch(); }
  // Whether the reduced gradient lies in the buffer that backwards add to.
  bool reduces_in_place() const {
    return (zero() == 0 || mesh_.size(Axis::dp_cp) == 1) && !accumulates_reductions();
  }
  // Whether updated parameters are gathered from their shards, and whether at the end of the step or before
  // the next one's forwards.
  bool gathers_parameters() const { return zero() == 1 || zero() == 2; }
  bool gathers_after_update() const { return gathers_parameters() && !run_.software.overlap_parameters; }
  bool gathers_at_start() const { return gathers_parameters() && run_.software.overlap_parameters; }
  // Whether this chunk holds a tied embedding of which another stage has the other copy.
  bool has_tied_copy(int stage, int chunk) const;

  Schedule schedule() const;

 private:
  config::RunFile run_;
  Mesh mesh_;
  model::LayerProgram layers_;
  std::vector<model::ChunkContent> chunks_;  // by global chunk: chunk x stages + stage
};

}  // namespace lockstep::parallel
