#include "train/groups.hpp"

namespace lockstep::train {

Groups make_groups(const config::RunFile& run, const parallel::Mesh& mesh, comm::World& world,
                   std::chrono::milliseconds timeout) {
  using parallel::Axis;
  const auto make = [&](Axis axis) -> std::unique_ptr<comm::Communicator> {
    auto ranks = mesh.group(axis, world.rank());
    if (ranks.size() == 1) return nullptr;
    auto group = world.group(model::to_string(axis), std::move(ranks));
    group->set_timeout(timeout);
    return group;
  };
  Groups groups;
  groups.at = mesh.coordinates(world.rank());
  groups.tp = make(Axis::tp);
  groups.tp_kv = make(Axis::tp_kv);
  groups.cp = make(Axis::cp);
  groups.pp = make(Axis::pp);
  if (run.model.tie_embeddings) groups.pp_ends = make(Axis::pp_ends);
  groups.dp_cp = make(Axis::dp_cp);
  return groups;
}

}  // namespace lockstep::train
