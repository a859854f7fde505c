#include "parallel/mesh.hpp"

#include <algorithm>
#include <stdexcept>

namespace lockstep::parallel {

Mesh::Mesh(int tp, int cp, int pp, int dp, int kv_copies, std::string_view rank_order)
    : tp_(tp), cp_(cp), pp_(pp), dp_(dp), kv_copies_(kv_copies) {
  constexpr std::array<std::string_view, 4> names = {"tp", "cp", "pp", "dp"};
  const std::array<int, 4> sizes = {tp, cp, pp, dp};
  int stride = 1;
  for (size_t at = 0; at < rank_order.size(); at += 3) {  // two letters and a dash
    const auto name = std::find(names.begin(), names.end(), rank_order.substr(at, 2));
    if (name == names.end()) throw std::invalid_argument("rank_order names the axes tp, cp, pp and dp");
    const auto axis = static_cast<size_t>(name - names.begin());
    strides_[axis] = stride;
    stride *= sizes[axis];
  }
  if (stride != size()) throw std::invalid_argument("rank_order names each axis once");
}

Mesh::Mesh(const config::RunFile& run)
    : Mesh(static_cast<int>(run.parallel.tp), static_cast<int>(run.parallel.cp),
           static_cast<int>(run.parallel.pp), static_cast<int>(run.parallel.dp),
           static_cast<int>(std::max<int64_t>(run.parallel.tp / run.model.kv_heads, 1)),
           run.parallel.rank_order) {}

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
      return 1;
    case Axis::tp:
    case Axis::tp_kv:
      return strides_[0];
    case Axis::cp:
    case Axis::dp_cp:
      return strides_[1];
    case Axis::pp:
      return strides_[2];
    case Axis::pp_ends:
      return strides_[2] * std::max(pp_ - 1, 1);
    case Axis::dp:
      return strides_[3];
  }
  return 1;
}

Coordinates Mesh::coordinates(int rank) const {
  return {rank / strides_[0] % tp_, rank / strides_[1] % cp_, rank / strides_[2] % pp_,
          rank / strides_[3] % dp_};
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
