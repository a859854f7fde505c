// The groups of ranks that a worker belongs to.
#pragma once

#include <memory>

#include "comm/communicator.hpp"
#include "parallel/mesh.hpp"

namespace lockstep::train {

struct Groups {
  parallel::Coordinates at;                // this worker's place in the mesh
  std::unique_ptr<comm::Communicator> tp;  // null where the axis has one rank
  std::unique_ptr<comm::Communicator> pp;  // group rank = pipeline position
  std::unique_ptr<comm::Communicator> dp;

  bool first_of_tp() const { return at.tp == 0; }
};

Groups make_groups(const parallel::Mesh& mesh, comm::World& world, std::chrono::milliseconds timeout);

}  // namespace lockstep::train
