// The loops that take nearly all of the simulator's time; compiled with -O3 for its vectoriser.
#pragma GCC optimize("O3")

#include "sim/lanes.hpp"

#include <algorithm>

namespace lockstep::sim {

namespace {

constexpr int usual_width = 32;  // columns of a tile

// Collectives of the groups that `rows` rows form from `first` on, a group a column, in at most usual_width
// columns.
void run_rows(const TileLanes& tile, int first, int columns, int rows, LaneValues seconds,
              const OpDraw& draw) {
  double end[usual_width], nominal[usual_width];
  double* const clock = tile.clock + first;
  double* const waited = tile.tp_wait + first;
  const uint32_t* const key_a = tile.key_a + first;
  const uint32_t* const key_b = tile.key_b + first;
  for (int c = 0; c < columns; ++c) end[c] = clock[c];
  for (int t = 1; t < rows; ++t) {
    const double* __restrict row = clock + t * tile.width;
    for (int c = 0; c < columns; ++c) end[c] = end[c] < row[c] ? row[c] : end[c];
  }
  for (int c = 0; c < columns; ++c) nominal[c] = seconds[static_cast<size_t>(first + c)];
  if (draw.shape == nullptr) {
    for (int c = 0; c < columns; ++c) end[c] += nominal[c];
  } else {
    const JitterShape shape = *draw.shape;
    for (int c = 0; c < columns; ++c) end[c] += nominal[c] * shape.factor({key_a[c], key_b[c]}, draw.key);
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

// What a kernel of each of `count` lanes alone takes.
void kernel_seconds(double* __restrict out, int count, double seconds, const double* __restrict factor,
                    const uint32_t* __restrict a, const uint32_t* __restrict b, const OpDraw& draw) {
  if (draw.shape == nullptr) {
    for (int i = 0; i < count; ++i) out[i] = seconds * factor[i];
    return;
  }
  const JitterShape shape = *draw.shape;
  const OpKey key = draw.key;
  for (int i = 0; i < count; ++i) out[i] = seconds * factor[i] * shape.factor({a[i], b[i]}, key);
}

// Moves clocks on by `seconds`, as end_beside() has it.
void go_on_beside(double* __restrict clock, const double* __restrict seconds, int count, double pace,
                  const double* __restrict lane_until, double row_until) {
  const double share = 1 - 1 / pace;
  for (int i = 0; i < count; ++i) {
    const double until = lane_until[i] < row_until ? row_until : lane_until[i];
    const double slowed = seconds[i] * pace, left = until - clock[i];
    const double shorter = left < slowed ? left : slowed;
    const double together = shorter < 0 ? 0 : shorter;
    clock[i] = clock[i] + seconds[i] + share * together;
  }
}

}  // namespace

LaneGrid::LaneGrid(int tp, int cp, int dp) : tp_(tp), cp_(cp), columns_(cp * dp) {
  const int tile_width = cp * std::max(usual_width / cp, 1);
  for (int first = 0; first < columns_; first += tile_width) {
    const Tile tile{first * tp, first, std::min(tile_width, columns_ - first)};
    tiles_.push_back(tile);
    for (int c = 0; c < tile.width; ++c) column_.push_back({tile.first_lane + c, tile.width});
  }
}

void run_kernel(const TileLanes& tile, double seconds, const OpDraw& draw) {
  const int lanes = tile.lanes();
  double* __restrict clock = tile.clock;
  const double* __restrict factor = tile.time_factor;
  if (draw.shape == nullptr) {
    for (int i = 0; i < lanes; ++i) clock[i] += seconds * factor[i];
    return;
  }
  const uint32_t* __restrict a = tile.key_a;
  const uint32_t* __restrict b = tile.key_b;
  const JitterShape shape = *draw.shape;
  const OpKey key = draw.key;
  for (int i = 0; i < lanes; ++i) clock[i] += seconds * factor[i] * shape.factor({a[i], b[i]}, key);
}

void run_slowed_kernel(const TileLanes& tile, double seconds, const OpDraw& draw, double pace,
                       const double* lane_until, const double* row_until) {
  double alone[usual_width];
  for (int row = 0; row < tile.tp; ++row) {
    for (int begin = 0; begin < tile.width; begin += usual_width) {
      const int first = row * tile.width + begin, count = std::min(usual_width, tile.width - begin);
      kernel_seconds(alone, count, seconds, tile.time_factor + first, tile.key_a + first, tile.key_b + first,
                     draw);
      go_on_beside(tile.clock + first, alone, count, pace, lane_until + first, row_until[row]);
    }
  }
}

void run_tp_collective(const TileLanes& tile, int rows, LaneValues seconds, const OpDraw& draw) {
  for (int row = 0; row < tile.tp; row += rows) {
    for (int first = 0; first < tile.width; first += usual_width) {
      const int columns = std::min(usual_width, tile.width - first);
      run_rows(tile, row * tile.width + first, columns, rows, seconds, draw);
    }
  }
}

void run_cp_collective(const TileLanes& tile, LaneValues seconds, const OpDraw& draw) {
  for (int first = 0; first < tile.lanes(); first += tile.cp) {
    double* const clock = tile.clock + first;
    double end = clock[0];
    for (int i = 1; i < tile.cp; ++i) end = std::max(end, clock[i]);
    end += seconds[static_cast<size_t>(first)] * draw.factor(tile.key_a[first], tile.key_b[first]);
    for (int i = 0; i < tile.cp; ++i) {
      tile.cp_wait[first + i] += end - clock[i];
      clock[i] = end;
    }
  }
}

}  // namespace lockstep::sim
