// The ranks of a pipeline stage as vector lanes: rows of tensor parallel, columns of dp_cp (cp inside dp:
// column = cp + CP dp). Lane order is [tile of columns][row][column inside the tile]: a tile stays in the
// first-level cache through all ops of an action, every op is one loop over its lanes, and the maximum over a
// tensor-parallel group is taken row against row. A tile holds whole context-parallel groups.
#pragma once

#include <cstdint>
#include <vector>

#include "sim/jitter.hpp"

namespace lockstep::sim {

struct Tile {
  int first_lane = 0;
  int first_column = 0;
  int width = 0;  // columns; the tile's lanes are [tp][width]
};

class LaneGrid {
 public:
  LaneGrid(int tp, int cp, int dp);

  int tp() const { return tp_; }
  int cp() const { return cp_; }
  int columns() const { return columns_; }
  int lanes() const { return tp_ * columns_; }
  const std::vector<Tile>& tiles() const { return tiles_; }
  int column(int cp, int dp) const { return cp + cp_ * dp; }
  int lane(int tp, int column) const;

 private:
  int tp_, cp_, columns_, tile_width_;
  std::vector<Tile> tiles_;
};

// One tile's arrays; each begins at the tile's first lane.
struct TileLanes {
  int tp = 1;
  int cp = 1;
  int width = 1;
  double* clock = nullptr;              // seconds, when the compute stream is free
  const double* time_factor = nullptr;  // of the rank's kernels
  const uint32_t* key_a = nullptr;
  const uint32_t* key_b = nullptr;
  double* tp_wait = nullptr;
  double* cp_wait = nullptr;

  int lanes() const { return tp * width; }
};

// How an op's draw is made; without jitter `shape` is null.
struct OpDraw {
  const JitterShape* shape = nullptr;
  OpKey key;

  double factor(uint32_t key_a, uint32_t key_b) const {
    return shape == nullptr ? 1.0 : shape->factor({key_a, key_b}, key);
  }
};

// A kernel of nominal length `seconds` on every lane.
void run_kernel(const TileLanes& tile, double seconds, const OpDraw& draw);

// Collectives: each rank of a group starts when the last is there, and none goes on before it ends. Drawn
// once a group, with its first rank's key. `seconds`: by lane of the tile.

// Of every `rows` neighbouring rows of a column: tensor-parallel groups, or those ranks of one that hold
// copies of the same key and value heads.
void run_tp_collective(const TileLanes& tile, int rows, const double* seconds, const OpDraw& draw);
// Of every context-parallel group: neighbouring columns of a row.
void run_cp_collective(const TileLanes& tile, const double* seconds, const OpDraw& draw);

}  // namespace lockstep::sim
