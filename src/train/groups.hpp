// The groups of ranks that a worker belongs to.
#pragma once

#include <memory>

#include "comm/communicator.hpp"
#include "parallel/mesh.hpp"

namespace lockstep::train {

// Null where a group has one rank.
struct Groups {
  parallel::Coordinates at;                     // this worker's place in the mesh
  std::unique_ptr<comm::Communicator> tp;       //
  std::unique_ptr<comm::Communicator> tp_kv;    // ranks with copies of the same key and value heads
  std::unique_ptr<comm::Communicator> cp;       //
  std::unique_ptr<comm::Communicator> pp;       // group rank = pipeline position
  std::unique_ptr<comm::Communicator> pp_ends;  // first and last stage, for tied embeddings; else null
  std::unique_ptr<comm::Communicator> dp_cp;    // ranks with the same parameters

  bool first_of_tp() const { return at.tp == 0; }
  int shard_rank() const { return dp_cp == nullptr ? 0 : dp_cp->rank(); }
};

// `run` is the one the mesh was made of.
Groups make_groups(const config::RunFile& run, const parallel::Mesh& mesh, comm::World& world,
                   std::chrono::milliseconds timeout);

}  // namespace lockstep::train
