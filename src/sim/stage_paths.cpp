#include "sim/stage_paths.hpp"

#include <algorithm>

namespace lockstep::sim {

namespace {

cluster::RankAxis rank_axis(const parallel::Mesh& mesh, parallel::Axis axis) {
  return {mesh.size(), mesh.stride(axis), mesh.size(axis)};
}

class Builder {
 public:
  Builder(const cluster::Network& network, const parallel::Mesh& mesh, const LaneGrid& grid)
      : mesh_(mesh),
        grid_(grid),
        tp_(network.ring_paths(rank_axis(mesh, parallel::Axis::tp))),
        dp_(network.ring_paths(rank_axis(mesh, parallel::Axis::dp))),
        pp_(network.ring_paths(rank_axis(mesh, parallel::Axis::pp))) {
    const int stages = mesh.size(parallel::Axis::pp);
    for (int offset = 1; offset < stages; ++offset) {
      // Messages go to neighbours; the ring closes where a rank holds several chunks.
      if (offset != 1 && offset != stages - 1) continue;
      shifts_[offset] = network.shift_paths(rank_axis(mesh, parallel::Axis::pp), offset);
    }
  }

  StagePaths stage(int stage) const {
    StagePaths paths;
    paths.tp = PathArrays(static_cast<size_t>(grid_.dp()));
    paths.dp = PathArrays(static_cast<size_t>(grid_.tp()));
    for (int d = 0; d < grid_.dp(); ++d) paths.tp.set(static_cast<size_t>(d), tp_[rank(stage, 0, d)]);
    for (int t = 0; t < grid_.tp(); ++t) paths.dp.set(static_cast<size_t>(t), dp_[rank(stage, t, 0)]);
    paths.pp = by_lane(stage, pp_);
    const int stages = mesh_.size(parallel::Axis::pp);
    for (const auto& [offset, hops] : shifts_) {
      paths.message[(stage + offset) % stages] = by_lane(stage, hops);
    }
    return paths;
  }

 private:
  size_t rank(int stage, int tp, int dp) const { return static_cast<size_t>(mesh_.rank({tp, 0, stage, dp})); }
  PathArrays by_lane(int stage, const std::vector<cluster::Path>& by_rank) const {
    PathArrays out(static_cast<size_t>(grid_.lanes()));
    for (int d = 0; d < grid_.dp(); ++d) {
      for (int t = 0; t < grid_.tp(); ++t) {
        out.set(static_cast<size_t>(grid_.lane(t, d)), by_rank[rank(stage, t, d)]);
      }
    }
    return out;
  }

  const parallel::Mesh& mesh_;
  const LaneGrid& grid_;
  std::vector<cluster::Path> tp_, dp_, pp_;
  std::map<int, std::vector<cluster::Path>> shifts_;
};

}  // namespace

std::vector<StagePaths> stage_paths(const cluster::Network& network, const parallel::Mesh& mesh,
                                    const LaneGrid& grid) {
  const Builder builder(network, mesh, grid);
  std::vector<StagePaths> out;
  for (int stage = 0; stage < mesh.size(parallel::Axis::pp); ++stage) out.push_back(builder.stage(stage));
  return out;
}

std::vector<StagePaths> free_paths(int stages) {
  StagePaths one;
  one.tp = one.dp = one.pp = PathArrays(1);
  for (int stage = 0; stage < stages; ++stage) one.message[stage] = PathArrays(1);
  return std::vector<StagePaths>(static_cast<size_t>(stages), one);
}

std::vector<StagePaths> free_paths_but_tp(const std::vector<StagePaths>& real) {
  std::vector<StagePaths> out = free_paths(static_cast<int>(real.size()));
  for (size_t stage = 0; stage < real.size(); ++stage) {
    const PathArrays& tp = real[stage].tp;
    out[stage].tp.latency[0] = *std::max_element(tp.latency.begin(), tp.latency.end());
    out[stage].tp.seconds_per_byte[0] =
        *std::max_element(tp.seconds_per_byte.begin(), tp.seconds_per_byte.end());
  }
  return out;
}

}  // namespace lockstep::sim
