#include "sim/jitter.hpp"

#include <array>
#include <cmath>
#include <numbers>
#include <stdexcept>

#include "base/philox.hpp"

namespace lockstep::sim {

namespace {

// How many of the 2^32 draws have each sum of four bytes.
const std::array<double, 1021>& sum_counts() {
  static const std::array<double, 1021> counts = [] {
    std::array<double, 1021> out{};
    std::array<double, 511> two{};
    for (size_t a = 0; a < 256; ++a) {
      for (size_t b = 0; b < 256; ++b) two[a + b] += 1;
    }
    for (size_t a = 0; a < two.size(); ++a) {
      for (size_t b = 0; b < two.size(); ++b) out[a + b] += two[a] * two[b];
    }
    return out;
  }();
  return counts;
}

// (offset + slope x sum)^16 over all draws.
struct Body {
  double offset = 1, slope = 0;
  double deviation = 0;
};

// Of the wanted spread, with a mean of 1.
Body body_of(double spread) {
  Body body;
  const double sum_deviation = std::sqrt(4 * (256.0 * 256.0 - 1) / 12);
  body.slope = spread / (16 * sum_deviation);
  body.offset = 1 - body.slope * 510;
  double above = 0, square = 0;  // of what a factor has above 1: small spreads would be lost beside the 1
  for (int32_t sum = 0; sum <= 1020; ++sum) {
    const double weight = sum_counts()[static_cast<size_t>(sum)] * 0x1p-32;
    const double more = std::pow(body.offset + body.slope * sum, 16) - 1;
    above += weight * more;
    square += weight * more * more;
  }
  const double scale = std::pow(1 + above, -1.0 / 16);
  body.offset *= scale;
  body.slope *= scale;
  body.deviation = std::sqrt(square - above * above) / (1 + above);
  return body;
}

}  // namespace

JitterShape::JitterShape(double deviation, double tail_probability, double tail_factor)
    : tail_factor_(static_cast<float>(tail_factor)),
      tail_bits_(static_cast<uint32_t>(std::llround(tail_probability * 0x1p32))) {
  if (!(deviation == 0 || (deviation >= least_deviation && deviation < 1))) {
    throw std::invalid_argument("jitter must be 0 or in [1e-6, 1)");
  }
  if (!(tail_probability >= 0 && tail_probability < 1) || !(tail_factor >= 1)) {
    throw std::invalid_argument("a tail has a probability in [0, 1) and a factor of at least 1");
  }
  if (deviation == 0) return;
  // The power stretches wide spreads; a few rounds find the spread that gives the wanted deviation.
  double spread = deviation;
  Body body;
  for (int round = 0; round < 40; ++round) {
    body = body_of(spread);
    spread *= deviation / body.deviation;
  }
  offset_ = static_cast<float>(body.offset);
  slope_ = static_cast<float>(body.slope);
}

LaneKey lane_key(uint64_t seed, int step, int rank) {
  const PhiloxCounter bits = philox4x32({static_cast<uint32_t>(rank), static_cast<uint32_t>(step), 0, 0},
                                        philox_key(seed, "op jitter, rank"));
  return {bits[0], bits[1]};
}

OpKey op_key(uint32_t op_index) {
  const PhiloxCounter bits = philox4x32({op_index, 0, 0, 0}, philox_key(0, "op jitter, op"));
  return {bits[0], bits[1]};
}

double uniform_of(uint64_t seed, const char* what, uint32_t index, uint32_t second_index) {
  const PhiloxCounter bits = philox4x32({index, second_index, 0, 0}, philox_key(seed, what));
  return (uint64_t{bits[0]} << 21 ^ bits[1] >> 11) * 0x1p-53;
}

double rank_time_factor(uint64_t seed, int rank, double deviation) {
  const PhiloxCounter bits =
      philox4x32({static_cast<uint32_t>(rank), 0, 0, 0}, philox_key(seed, "rank speed"));
  // Box, Muller, "A Note on the Generation of Random Normal Deviates", 1958.
  const double radius = std::sqrt(-2 * std::log(uniform_open(bits[0], bits[1])));
  const double normal = radius * std::cos(2 * std::numbers::pi * uniform_open(bits[2], bits[3]));
  const double variance = std::log(1 + deviation * deviation);
  return std::exp(std::sqrt(variance) * normal - variance / 2);
}

}  // namespace lockstep::sim
