#include "sim/tile_groups.hpp"

namespace lockstep::sim {

const std::vector<std::vector<size_t>>& TileGroups::of(const Tile& tile, Way way) {
  const auto [known, is_new] = known_.try_emplace({tile.width, way});
  std::vector<std::vector<size_t>>& out = known->second;
  if (!is_new) return out;
  const auto width = static_cast<size_t>(tile.width), lanes = static_cast<size_t>(grid_.tp()) * width;
  const bool along_row = way == Way::cp;
  const auto members = static_cast<size_t>(along_row ? grid_.cp() : way == Way::tp ? grid_.tp() : kv_copies_);
  const size_t step = along_row ? 1 : width;  // from one member to the next
  for (size_t lane = 0; lane < lanes; ++lane) {
    if (lane / step % members != 0) continue;
    out.emplace_back();
    for (size_t i = 0; i < members; ++i) out.back().push_back(lane + i * step);
  }
  return out;
}

}  // namespace lockstep::sim
