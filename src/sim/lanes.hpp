// The ranks of a pipeline stage as vector lanes: rows of tensor parallel, columns of dp_cp (cp inside dp:
// column = cp + CP dp). Lane order is [tile of columns][row][column inside the tile]: a tile stays in the
// first-level cache through all ops of an action, every op is one loop over its lanes, and the maximum over a
// tensor-parallel group is taken row against row. A tile holds whole context-parallel groups.
#pragma once

#include <cstdint>
#include <vector>

#include "sim/lane_loops.hpp"

namespace lockstep::sim {

struct Tile {
  int first_lane = 0;
  int first_column = 0;
  int width = 0;  // columns; the tile's lanes are [tp][width]

  // The first lane of a row.
  size_t row(int tp) const { return static_cast<size_t>(first_lane + tp * width); }
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
  int lane(int tp, int column) const {
    const Column& c = column_[static_cast<size_t>(column)];
    return c.first_lane + tp * c.tile_width;
  }

 private:
  struct Column {
    int first_lane = 0;  // its lane of row 0
    int tile_width = 0;
  };
  int tp_, cp_, columns_;
  std::vector<Tile> tiles_;
  std::vector<Column> column_;
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

// A kernel of nominal length `seconds` on every lane.
void run_kernel(const TileLanes& tile, double seconds, const OpDraw& draw);

// The same while something goes on beside it: it takes `pace` times as long before `lane_until`, by lane, and
// before `row_until`, by row.
void run_slowed_kernel(const TileLanes& tile, double seconds, const OpDraw& draw, double pace,
                       const double* lane_until, const double* row_until);

// Collectives: each rank of a group starts when the last is there, and none goes on before it ends. Drawn
// once a group, with its first rank's key. `seconds`: by lane of the tile.

// Of every `rows` neighbouring rows of a column: tensor-parallel groups, or those ranks of one that hold
// copies of the same key and value heads.
void run_tp_collective(const TileLanes& tile, int rows, LaneValues seconds, const OpDraw& draw);
// Of every context-parallel group: neighbouring columns of a row.
void run_cp_collective(const TileLanes& tile, LaneValues seconds, const OpDraw& draw);

}  // namespace lockstep::sim
