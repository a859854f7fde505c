// The loops that take nearly all of the simulator's time; compiled with -O3 for its vectoriser.
#pragma GCC optimize("O3")

#include "sim/lanes.hpp"

#include <algorithm>

namespace lockstep::sim {

namespace {

constexpr int tile_width = 32;

}  // namespace

LaneGrid::LaneGrid(int tp, int dp) : tp_(tp), dp_(dp) {
  for (int first = 0; first < dp; first += tile_width) {
    tiles_.push_back({first * tp, first, std::min(tile_width, dp - first)});
  }
}

int LaneGrid::lane(int tp, int dp) const {
  const Tile& tile = tiles_[static_cast<size_t>(dp / tile_width)];
  return tile.first_lane + tp * tile.width + dp - tile.first_dp;
}

void run_kernel(const TileLanes& tile, double seconds, const JitterShape* shape, OpKey key) {
  const int lanes = tile.tp * tile.width;
  double* __restrict clock = tile.clock;
  const double* __restrict factor = tile.time_factor;
  if (shape == nullptr) {
    for (int i = 0; i < lanes; ++i) clock[i] += seconds * factor[i];
    return;
  }
  const uint32_t* __restrict a = tile.key_a;
  const uint32_t* __restrict b = tile.key_b;
  const JitterShape local = *shape;
  for (int i = 0; i < lanes; ++i) clock[i] += seconds * factor[i] * local.factor({a[i], b[i]}, key);
}

void run_tp_collective(const TileLanes& tile, double rounds, double bytes, const JitterShape* shape,
                       OpKey key) {
  const int width = tile.width;
  double end[tile_width];
  for (int d = 0; d < width; ++d) end[d] = tile.clock[d];
  for (int t = 1; t < tile.tp; ++t) {
    const double* __restrict row = tile.clock + t * width;
    for (int d = 0; d < width; ++d) end[d] = end[d] < row[d] ? row[d] : end[d];
  }
  for (int d = 0; d < width; ++d) {
    double seconds = rounds * tile.tp_latency[d] + bytes * tile.tp_seconds_per_byte[d];
    if (shape != nullptr) seconds *= shape->factor({tile.key_a[d], tile.key_b[d]}, key);
    end[d] += seconds;
  }
  for (int t = 0; t < tile.tp; ++t) {
    double* __restrict row = tile.clock + t * width;
    double* __restrict wait = tile.tp_wait + t * width;
    for (int d = 0; d < width; ++d) {
      wait[d] += end[d] - row[d];
      row[d] = end[d];
    }
  }
}

}  // namespace lockstep::sim
