#include "parallel/mesh.hpp"

#include <algorithm>

namespace lockstep::parallel {

Mesh::Mesh(const config::RunFile& run)
    : Mesh(static_cast<int>(run.parallel.tp), static_cast<int>(run.parallel.cp),
           static_cast<int>(run.parallel.pp), static_cast<int>(run.parallel.dp),
           static_cast<int>(std::max<int64_t>(run.parallel.tp / run.model.kv_heads, 1))) {}

int Mesh::size(Axis axis) const {
  switch (axis) {
    case Axis::none:
      return 1;
    case Axis::tp:
      return tp_;
    case Axis::tp_kv:
      return kv_copies_;
    case Axis::cp:
      return cp_;
    case Axis::pp:
      return pp_;
    case Axis::pp_ends:
      return std::min(pp_, 2);
    case Axis::dp:
      return dp_;
    case Axis::dp_cp:
      return dp_ * cp_;
  }
  return 1;
}

int Mesh::stride(Axis axis) const {
  switch (axis) {
    case Axis::none:
    case Axis::tp:
    case Axis::tp_kv:
      return 1;
    case Axis::cp:
    case Axis::dp_cp:
      return tp_;
    case Axis::pp:
      return tp_ * cp_;
    case Axis::pp_ends:
      return tp_ * cp_ * std::max(pp_ - 1, 1);
    case Axis::dp:
      return tp_ * cp_ * pp_;
  }
  return 1;
}

Coordinates Mesh::coordinates(int rank) const {
  return {rank % tp_, rank / tp_ % cp_, rank / (tp_ * cp_) % pp_, rank / (tp_ * cp_ * pp_)};
}

std::vector<int> Mesh::group(Axis axis, int rank) const {
  std::vector<int> ranks;
  const Coordinates at = coordinates(rank);
  if (axis == Axis::dp_cp) {
    for (int d = 0; d < dp_; ++d) {
      for (int c = 0; c < cp_; ++c) ranks.push_back(this->rank({at.tp, c, at.pp, d}));
    }
    return ranks;
  }
  if (axis == Axis::pp_ends) {
    if (at.pp != 0 && at.pp != pp_ - 1) return {rank};
    ranks.push_back(this->rank({at.tp, at.cp, 0, at.dp}));
    if (pp_ > 1) ranks.push_back(this->rank({at.tp, at.cp, pp_ - 1, at.dp}));
    return ranks;
  }
  const int step = stride(axis);
  const int count = size(axis);
  const int first = rank - rank / step % count * step;
  for (int i = 0; i < count; ++i) ranks.push_back(first + i * step);
  return ranks;
}

}  // namespace lockstep::parallel
