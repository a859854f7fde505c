// Loops over neighbouring lanes, so written that they vectorise.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "sim/jitter.hpp"
#include "sim/per_lane.hpp"

namespace lockstep::sim {

// A value for each of several lanes, or one for all.
struct LaneValues {
  const double* each = nullptr;  // null: `all`
  double all = 0;

  double operator[](size_t i) const { return each == nullptr ? all : each[i]; }
};
// Of the lanes from `first` on.
inline LaneValues values_from(const PerLane& values, size_t first) {
  if (values.is_same_for_all()) return {nullptr, values[0]};
  return {values.data() + first, 0};
}

// How an op's draw is made; without jitter `shape` is null.
struct OpDraw {
  const JitterShape* shape = nullptr;
  OpKey key;

  float factor(uint32_t key_a, uint32_t key_b) const {
    return shape == nullptr ? 1.0f : shape->factor({key_a, key_b}, key);
  }
};

// Of `count` values, at least one.
double lowest(const double* values, size_t count);
double highest(const double* values, size_t count);
inline double lowest(const std::vector<double>& v) { return lowest(v.data(), v.size()); }
inline double highest(const std::vector<double>& v) { return highest(v.data(), v.size()); }

// out = nominal x draw of the lane.
void draw_seconds(double* out, size_t count, LaneValues nominal, const uint32_t* key_a, const uint32_t* key_b,
                  const OpDraw& draw);

// Moves every clock on to `until` where that is later, and books the difference.
void wait_until(double* clock, double* booked, size_t count, LaneValues until);

// What each lane does after `before`: ready = max(ready, before), end = ready + seconds.
void start_after(double* ready, double* end, size_t count, const double* before, const double* seconds);

// end = max(end, end_beside(start, seconds, pace, until)); see sim/stream_load.hpp.
void delay_beside(double* end, size_t count, const double* start, const double* seconds, LaneValues pace,
                  LaneValues until);

// The end of what starts at `start`, alone takes `seconds`, and takes `pace` times as long, at least 1,
// before `until`.
inline double end_beside(double start, double seconds, double pace, double until) {
  const double together = until - start < seconds * pace ? until - start : seconds * pace;
  return start + seconds + (1 - 1 / pace) * (together < 0 ? 0 : together);
}

}  // namespace lockstep::sim
