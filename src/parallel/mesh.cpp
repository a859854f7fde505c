#include "parallel/mesh.hpp"

namespace lockstep::parallel {

int Mesh::size(Axis axis) const {
  switch (axis) {
    case Axis::none:
      return 1;
    case Axis::tp:
      return tp_;
    case Axis::cp:
      return cp_;
    case Axis::pp:
      return pp_;
    case Axis::dp:
      return dp_;
  }
  return 1;
}

int Mesh::stride(Axis axis) const {
  switch (axis) {
    case Axis::none:
    case Axis::tp:
      return 1;
    case Axis::cp:
      return tp_;
    case Axis::pp:
      return tp_ * cp_;
    case Axis::dp:
      return tp_ * cp_ * pp_;
  }
  return 1;
}

Coordinates Mesh::coordinates(int rank) const {
  return {rank % tp_, rank / tp_ % cp_, rank / (tp_ * cp_) % pp_, rank / (tp_ * cp_ * pp_)};
}

std::vector<int> Mesh::group(Axis axis, int rank) const {
  const int step = stride(axis);
  const int count = size(axis);
  const int first = rank - rank / step % count * step;
  std::vector<int> ranks;
  ranks.reserve(static_cast<size_t>(count));
  for (int i = 0; i < count; ++i) ranks.push_back(first + i * step);
  return ranks;
}

}  // namespace lockstep::parallel
