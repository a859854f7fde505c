// The ranks of a pipeline stage as vector lanes. Lane order is [tile of dp][tp][dp inside the tile]: a tile
// stays in the first-level cache through all ops of an action, every op is one loop over its lanes, and the
// maximum over a tensor-parallel group is taken row against row.
#pragma once

#include <cstdint>
#include <vector>

#include "sim/jitter.hpp"

namespace lockstep::sim {

struct Tile {
  int first_lane = 0;
  int first_dp = 0;
  int width = 0;  // dp ranks; the tile's lanes are [tp][width]
};

class LaneGrid {
 public:
  LaneGrid(int tp, int dp);

  int tp() const { return tp_; }
  int dp() const { return dp_; }
  int lanes() const { return tp_ * dp_; }
  const std::vector<Tile>& tiles() const { return tiles_; }
  int lane(int tp, int dp) const;

 private:
  int tp_, dp_;
  std::vector<Tile> tiles_;
};

// One tile's arrays; each begins at the tile's first lane, the paths at its first dp rank.
struct TileLanes {
  int tp = 1;
  int width = 1;
  double* clock = nullptr;              // seconds, when the compute stream is free
  const double* time_factor = nullptr;  // of the rank's kernels
  const uint32_t* key_a = nullptr;
  const uint32_t* key_b = nullptr;
  double* tp_wait = nullptr;
  const double* tp_latency = nullptr;           // of the tp group's ring
  const double* tp_seconds_per_byte = nullptr;  //
};

// A kernel of nominal length `seconds` on every lane. Without jitter `shape` is null.
void run_kernel(const TileLanes& tile, double seconds, const JitterShape* shape, OpKey key);

// A collective of every tp group of the tile: starts when its last rank is there, and keeps all of them until
// it ends. Drawn once a group, with its first rank's key.
void run_tp_collective(const TileLanes& tile, double rounds, double bytes, const JitterShape* shape,
                       OpKey key);

}  // namespace lockstep::sim
