#pragma GCC optimize("O3")

#include "sim/lane_loops.hpp"

namespace lockstep::sim {

namespace {

// Several running values: one alone would make every step wait for the one before.
constexpr size_t running = 16;

template <class Better>
double best_of(const double* values, size_t count, Better better) {
  double best[running];
  for (double& b : best) b = values[0];
  size_t i = 0;
  for (; i + running <= count; i += running) {
    for (size_t k = 0; k < running; ++k) best[k] = better(values[i + k], best[k]) ? values[i + k] : best[k];
  }
  for (; i < count; ++i) best[0] = better(values[i], best[0]) ? values[i] : best[0];
  for (size_t k = 1; k < running; ++k) best[0] = better(best[k], best[0]) ? best[k] : best[0];
  return best[0];
}

}  // namespace

double lowest(const double* values, size_t count) {
  return best_of(values, count, [](double a, double b) { return a < b; });
}

double highest(const double* values, size_t count) {
  return best_of(values, count, [](double a, double b) { return a > b; });
}

void draw_seconds(double* __restrict out, size_t count, LaneValues nominal, const uint32_t* __restrict key_a,
                  const uint32_t* __restrict key_b, const OpDraw& draw) {
  if (draw.shape == nullptr) {
    for (size_t i = 0; i < count; ++i) out[i] = nominal[i];
    return;
  }
  const JitterShape shape = *draw.shape;
  const OpKey key = draw.key;
  for (size_t i = 0; i < count; ++i) out[i] = nominal[i] * shape.factor({key_a[i], key_b[i]}, key);
}

void wait_until(double* __restrict clock, double* __restrict booked, size_t count, LaneValues until) {
  for (size_t i = 0; i < count; ++i) {
    const double later = clock[i] < until[i] ? until[i] : clock[i];
    booked[i] += later - clock[i];
    clock[i] = later;
  }
}

void start_after(double* __restrict ready, double* __restrict end, size_t count,
                 const double* __restrict before, const double* __restrict seconds) {
  for (size_t i = 0; i < count; ++i) {
    ready[i] = ready[i] < before[i] ? before[i] : ready[i];
    end[i] = ready[i] + seconds[i];
  }
}

void delay_beside(double* __restrict end, size_t count, const double* __restrict start,
                  const double* __restrict seconds, LaneValues pace, LaneValues until) {
  for (size_t i = 0; i < count; ++i) {
    const double later = end_beside(start[i], seconds[i], pace[i], until[i]);
    end[i] = end[i] < later ? later : end[i];
  }
}

}  // namespace lockstep::sim
