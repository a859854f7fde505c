// The loops that take nearly all of the simulator's time; compiled with -O3 for its vectoriser.
#pragma GCC optimize("O3")

#include "sim/lanes.hpp"

#include <algorithm>

namespace lockstep::sim {

namespace {

constexpr int usual_width = 32;  // columns of a tile

// Collectives of the groups that `rows` rows form, a group a column, in at most usual_width columns.
void run_rows(const TileLanes& tile, int first_lane, int columns, int rows, const RingView& ring,
              const CollectiveTime& time) {
  double end[usual_width];
  double* const clock = tile.clock + first_lane;
  double* const waited = tile.tp_wait + first_lane;
  const uint32_t* const key_a = tile.key_a + first_lane;
  const uint32_t* const key_b = tile.key_b + first_lane;
  for (int c = 0; c < columns; ++c) end[c] = clock[c];
  for (int t = 1; t < rows; ++t) {
    const double* __restrict row = clock + t * tile.width;
    for (int c = 0; c < columns; ++c) end[c] = end[c] < row[c] ? row[c] : end[c];
  }
  for (int c = 0; c < columns; ++c) {
    double seconds = time.rounds * ring.latency[c] + time.bytes * ring.seconds_per_byte[c];
    if (time.shape != nullptr) seconds *= time.shape->factor({key_a[c], key_b[c]}, time.key);
    end[c] += seconds;
  }
  for (int t = 0; t < rows; ++t) {
    double* __restrict row = clock + t * tile.width;
    double* __restrict wait = waited + t * tile.width;
    for (int c = 0; c < columns; ++c) {
      wait[c] += end[c] - row[c];
      row[c] = end[c];
    }
  }
}

RingView from(const RingView& ring, int offset) {
  return {ring.latency + offset, ring.seconds_per_byte + offset};
}

}  // namespace

LaneGrid::LaneGrid(int tp, int cp, int dp)
    : tp_(tp), cp_(cp), columns_(cp * dp), tile_width_(cp * std::max(usual_width / cp, 1)) {
  for (int first = 0; first < columns_; first += tile_width_) {
    tiles_.push_back({first * tp, first, std::min(tile_width_, columns_ - first)});
  }
}

int LaneGrid::lane(int tp, int column) const {
  const Tile& tile = tiles_[static_cast<size_t>(column / tile_width_)];
  return tile.first_lane + tp * tile.width + column - tile.first_column;
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

void run_tp_collective(const TileLanes& tile, const CollectiveTime& time) {
  for (int first = 0; first < tile.width; first += usual_width) {
    const int columns = std::min(usual_width, tile.width - first);
    run_rows(tile, first, columns, tile.tp, from(tile.tp_ring, first), time);
  }
}

void run_tp_kv_collective(const TileLanes& tile, int copies, const CollectiveTime& time) {
  for (int row = 0; row < tile.tp; row += copies) {
    for (int first = 0; first < tile.width; first += usual_width) {
      const int lane = row * tile.width + first;
      run_rows(tile, lane, std::min(usual_width, tile.width - first), copies, from(tile.tp_kv_ring, lane),
               time);
    }
  }
}

void run_cp_collective(const TileLanes& tile, const CollectiveTime& time) {
  const int lanes = tile.tp * tile.width;
  for (int first = 0; first < lanes; first += tile.cp) {
    double* const clock = tile.clock + first;
    double end = clock[0];
    for (int i = 1; i < tile.cp; ++i) end = std::max(end, clock[i]);
    double seconds =
        time.rounds * tile.cp_ring.latency[first] + time.bytes * tile.cp_ring.seconds_per_byte[first];
    if (time.shape != nullptr) {
      seconds *= time.shape->factor({tile.key_a[first], tile.key_b[first]}, time.key);
    }
    end += seconds;
    for (int i = 0; i < tile.cp; ++i) {
      tile.cp_wait[first + i] += end - clock[i];
      clock[i] = end;
    }
  }
}

}  // namespace lockstep::sim
