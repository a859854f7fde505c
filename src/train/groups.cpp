#include "train/groups.hpp"

namespace lockstep::train {

Groups make_groups(const parallel::Mesh& mesh, comm::World& world, std::chrono::milliseconds timeout) {
  const auto make = [&](parallel::Axis axis) -> std::unique_ptr<comm::Communicator> {
    if (mesh.size(axis) == 1) return nullptr;
    auto group = world.group(model::to_string(axis), mesh.group(axis, world.rank()));
    group->set_timeout(timeout);
    return group;
  };
  Groups groups;
  groups.at = mesh.coordinates(world.rank());
  groups.tp = make(parallel::Axis::tp);
  groups.pp = make(parallel::Axis::pp);
  groups.dp = make(parallel::Axis::dp);
  return groups;
}

}  // namespace lockstep::train
