// Which lanes of a tile form the groups of a collective.
#pragma once

#include <map>
#include <utility>
#include <vector>

#include "sim/lanes.hpp"
#include "sim/priced_program.hpp"

namespace lockstep::sim {

class TileGroups {
 public:
  // `kv_copies`: neighbouring ranks of tp that hold the same key and value heads. `grid` outlives this.
  TileGroups(const LaneGrid& grid, int kv_copies) : grid_(grid), kv_copies_(kv_copies) {}

  // The lanes of each group of such a tile, counted from the tile's first lane. `way`: tp, tp_kv or cp.
  const std::vector<std::vector<size_t>>& of(const Tile& tile, Way way);

 private:
  const LaneGrid& grid_;
  int kv_copies_;
  std::map<std::pair<int, Way>, std::vector<std::vector<size_t>>> known_;  // by width
};

}  // namespace lockstep::sim
