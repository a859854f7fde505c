#include "cost/axis_groups.hpp"

#include <algorithm>

namespace lockstep::cost {

namespace {

int equal_share(const std::vector<int>& ranks, const cluster::Fabric& fabric) {
  const auto node = [&](size_t i) { return fabric.node(ranks[i]); };
  size_t on_first = 1;
  while (on_first < ranks.size() && node(on_first) == node(0)) ++on_first;
  if (on_first == 1 || ranks.size() % on_first != 0) return 1;
  for (size_t i = on_first; i < ranks.size(); i += on_first) {
    const bool next_is_other = i + on_first == ranks.size() || node(i + on_first) != node(i);
    if (node(i) == node(i - 1) || node(i) != node(i + on_first - 1) || !next_is_other) return 1;
  }
  return static_cast<int>(on_first);
}

}  // namespace

AxisGroups::AxisGroups(const parallel::Mesh& mesh, model::Axis axis, const cluster::Fabric& fabric)
    : group_of_(static_cast<size_t>(mesh.size()), -1) {
  members_.reserve(group_of_.size());
  for (int rank = 0; rank < mesh.size(); ++rank) {
    if (group_of(rank) >= 0) continue;
    std::vector<int> ranks = mesh.group(axis, rank);
    std::sort(ranks.begin(), ranks.end());
    for (const int member : ranks) group_of_[static_cast<size_t>(member)] = count();
    members_.insert(members_.end(), ranks.begin(), ranks.end());
    begins_.push_back(members_.size());
    per_node_.push_back(equal_share(ranks, fabric));
  }
}

}  // namespace lockstep::cost
