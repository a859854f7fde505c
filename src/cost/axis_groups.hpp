// The groups of ranks along an axis of the mesh, and how they lie on nodes.
#pragma once

#include <span>
#include <vector>

#include "cluster/fabric.hpp"
#include "parallel/mesh.hpp"

namespace lockstep::cost {

class AxisGroups {
 public:
  AxisGroups(const parallel::Mesh& mesh, model::Axis axis, const cluster::Fabric& fabric);

  int count() const { return static_cast<int>(per_node_.size()); }
  // Global ranks, ascending: node after node.
  std::span<const int> members(int group) const {
    const auto g = static_cast<size_t>(group);
    return {members_.data() + begins_[g], members_.data() + begins_[g + 1]};
  }
  int group_of(int rank) const { return group_of_[static_cast<size_t>(rank)]; }
  // Members on each of the group's nodes; 1 where nodes have different numbers of them.
  int ranks_per_node(int group) const { return per_node_[static_cast<size_t>(group)]; }

 private:
  std::vector<int> members_;
  std::vector<size_t> begins_ = {0};
  std::vector<int> per_node_;
  std::vector<int> group_of_;
};

}  // namespace lockstep::cost
