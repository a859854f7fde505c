// Seeded imperfection: how much longer than nominal an op takes, and how fast a rank is.
//
// A draw depends on (seed, step, global rank, index of the op in the rank's program) alone, never on how
// ranks are put into tiles, threads or which order they run in: the same seed gives the same bits. Each draw
// is a keyed mixing hash (multiply, shift, xor; constants of MurmurHash3's and "lowbias32"'s finalizers) of
// which the four bytes are summed: nearly normal, without a tail beyond 3.45 standard deviations and without
// any transcendental function, so that a loop over lanes vectorises.
#pragma once

#include <cstdint>

namespace lockstep::sim {

// 64-bit keys, in halves. The second half comes in after a round of mixing; otherwise a rank and an op whose
// keys' difference repeats would repeat draws.
struct LaneKey {
  uint32_t a = 0, b = 0;
};
struct OpKey {
  uint32_t a = 0, b = 0;
};

LaneKey lane_key(uint64_t seed, int step, int rank);
OpKey op_key(uint32_t op_index);

inline uint32_t jitter_bits(LaneKey lane, OpKey op) {
  uint32_t x = (lane.a ^ op.a) * 0x85EBCA6Bu;
  x ^= x >> 15;
  x = (x ^ (lane.b + op.b)) * 0x7FEB352Du;
  x ^= x >> 13;
  x *= 0x846CA68Bu;
  return x ^ x >> 16;
}

// 0 to 1020; mean 510, variance 4 (256^2 - 1) / 12.
inline int32_t byte_sum(uint32_t bits) {
  const uint32_t pairs = (bits & 0x00FF00FFu) + (bits >> 8 & 0x00FF00FFu);
  return static_cast<int32_t>((pairs & 0xFFFFu) + (pairs >> 16));
}

// Turns a draw into a factor on a time. The body is (offset + slope x sum)^16, which is close to
// log-normal and never negative, made so that over all draws the mean is 1 and the standard deviation is the
// wanted one. A sum of bytes has no tail, so stragglers stand apart: a share of the draws, those with the
// lowest bits, take `tail_factor` instead. Draws are floats: twice as many go into a vector as doubles.
class JitterShape {
 public:
  // What floats around 1 still tell apart.
  static constexpr double least_deviation = 1e-6;

  // deviation 0 or from least_deviation to below 1, tail_probability in [0, 1), tail_factor at least 1. A
  // deviation of 0 makes the body 1.
  explicit JitterShape(double deviation, double tail_probability = 0, double tail_factor = 1);

  float factor(LaneKey lane, OpKey op) const {
    const uint32_t bits = jitter_bits(lane, op);
    const float body = of_sum(byte_sum(bits));
    return bits < tail_bits_ ? tail_factor_ : body;
  }
  float of_sum(int32_t sum) const {
    float y = offset_ + slope_ * static_cast<float>(sum);
    y *= y;
    y *= y;
    y *= y;
    y *= y;
    return y;
  }
  bool off() const { return slope_ == 0 && tail_bits_ == 0; }

 private:
  float offset_ = 1;
  float slope_ = 0;
  float tail_factor_ = 1;
  uint32_t tail_bits_ = 0;  // draws below this are stragglers
};

// Uniform in [0, 1), one for each (seed, what, index).
double uniform_of(uint64_t seed, const char* what, uint32_t index, uint32_t second_index = 0);

// Time factor of a rank's kernels: log-normal with mean 1, keyed by (seed, global rank); the same in every
// step.
double rank_time_factor(uint64_t seed, int rank, double deviation);

}  // namespace lockstep::sim
