#include "sim/stage_paths.hpp"

#include <algorithm>

namespace lockstep::sim {

namespace {

using parallel::Axis;

class Builder {
 public:
  Builder(const cluster::Network& network, const parallel::Mesh& mesh, const LaneGrid& grid)
      : mesh_(mesh), grid_(grid), ranks_(ranks_of_stages()) {
    const auto ring = [&](Axis axis) {
      return network.ring_paths(mesh.size(), [&](int rank) { return mesh.group(axis, rank); });
    };
    tp_ = ring(Axis::tp);
    tp_kv_ = ring(Axis::tp_kv);
    cp_ = ring(Axis::cp);
    dp_ = ring(Axis::dp_cp);
    pp_ = ring(Axis::pp);
    pp_ends_ = ring(Axis::pp_ends);
    const int stages = mesh.size(Axis::pp);
    for (int offset = 1; offset < stages; ++offset) {
      // Messages go to neighbours; the ring closes where a rank holds several chunks.
      if (offset != 1 && offset != stages - 1) continue;
      shifts_[offset] = network.shift_paths({mesh.size(), mesh.stride(Axis::pp), stages}, offset);
    }
  }

  StagePaths stage(int stage) const {
    StagePaths paths;
    const std::vector<int>& ranks = ranks_[static_cast<size_t>(stage)];
    const auto rank = [&](int tp, int column) {
      return static_cast<size_t>(ranks[static_cast<size_t>(grid_.lane(tp, column))]);
    };
    paths.tp = PathArrays(static_cast<size_t>(grid_.columns()));
    paths.dp = PathArrays(static_cast<size_t>(grid_.tp()));
    for (int c = 0; c < grid_.columns(); ++c) paths.tp.set(static_cast<size_t>(c), tp_[rank(0, c)]);
    for (int t = 0; t < grid_.tp(); ++t) paths.dp.set(static_cast<size_t>(t), dp_[rank(t, 0)]);
    paths.tp_kv = by_lane(ranks, tp_kv_);
    paths.cp = by_lane(ranks, cp_);
    paths.pp = by_lane(ranks, pp_);
    paths.pp_ends = by_lane(ranks, pp_ends_);
    const int stages = mesh_.size(Axis::pp);
    for (const auto& [offset, hops] : shifts_) {
      paths.message[(stage + offset) % stages] = by_lane(ranks, hops);
    }
    return paths;
  }

 private:
  // By stage and lane.
  std::vector<std::vector<int>> ranks_of_stages() const {
    const std::vector<int> none(static_cast<size_t>(grid_.lanes()));
    std::vector<std::vector<int>> ranks(static_cast<size_t>(mesh_.size(Axis::pp)), none);
    for (int rank = 0; rank < mesh_.size(); ++rank) {
      const parallel::Coordinates c = mesh_.coordinates(rank);
      const int lane = grid_.lane(c.tp, grid_.column(c.cp, c.dp));
      ranks[static_cast<size_t>(c.pp)][static_cast<size_t>(lane)] = rank;
    }
    return ranks;
  }
  static PathArrays by_lane(const std::vector<int>& ranks, const std::vector<cluster::Path>& by_rank) {
    PathArrays out(ranks.size());
    for (size_t lane = 0; lane < ranks.size(); ++lane) {
      out.set(lane, by_rank[static_cast<size_t>(ranks[lane])]);
    }
    return out;
  }

  const parallel::Mesh& mesh_;
  const LaneGrid& grid_;
  std::vector<std::vector<int>> ranks_;
  std::vector<cluster::Path> tp_, tp_kv_, cp_, dp_, pp_, pp_ends_;
  std::map<int, std::vector<cluster::Path>> shifts_;
};

void set_slowest(PathArrays& one, const PathArrays& of) {
  one.latency[0] = *std::max_element(of.latency.begin(), of.latency.end());
  one.seconds_per_byte[0] = *std::max_element(of.seconds_per_byte.begin(), of.seconds_per_byte.end());
}

}  // namespace

std::vector<StagePaths> stage_paths(const cluster::Network& network, const parallel::Mesh& mesh,
                                    const LaneGrid& grid) {
  const Builder builder(network, mesh, grid);
  std::vector<StagePaths> out;
  for (int stage = 0; stage < mesh.size(Axis::pp); ++stage) out.push_back(builder.stage(stage));
  return out;
}

std::vector<StagePaths> free_paths(int stages) {
  StagePaths one;
  for (PathArrays* axis : {&one.tp, &one.tp_kv, &one.cp, &one.dp, &one.pp, &one.pp_ends}) {
    *axis = PathArrays(1);
  }
  for (int stage = 0; stage < stages; ++stage) one.message[stage] = PathArrays(1);
  return std::vector<StagePaths>(static_cast<size_t>(stages), one);
}

std::vector<StagePaths> free_messages(const std::vector<StagePaths>& real) {
  std::vector<StagePaths> out = free_paths(static_cast<int>(real.size()));
  for (size_t stage = 0; stage < real.size(); ++stage) {
    set_slowest(out[stage].tp, real[stage].tp);
    set_slowest(out[stage].cp, real[stage].cp);
  }
  return out;
}

}  // namespace lockstep::sim
