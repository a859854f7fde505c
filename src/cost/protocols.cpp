#include "cost/protocols.hpp"

#include <cmath>
#include <cstddef>

namespace lockstep::cost {

namespace {

// By powers of two from 64 bytes to 256 MiB.
using Corrections = std::array<double, 23>;
constexpr Corrections ll_corrections = {1.0, 1.0, 1.0, 1.0, 0.9, 0.8, 0.7, 0.7, 0.7, 0.7, 0.6, 0.5,
                                        0.4, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 1.0, 1.0, 1.0, 1.0};
constexpr Corrections ll128_corrections = {1.0, 1.0, 1.0, 1.0, 1.0, 0.9, 0.8, 0.8, 0.8, 0.7, 0.6, 0.6,
                                           0.6, 0.6, 0.6, 0.6, 0.8, 0.9, 0.9, 0.9, 0.9, 1.0, 1.0};
constexpr Corrections simple_corrections = {0.9, 0.9, 0.9, 0.9, 0.9, 0.9, 0.9, 0.8, 0.7, 0.6, 0.6, 0.5,
                                            0.5, 0.5, 0.5, 0.6, 0.7, 0.8, 0.7, 0.7, 0.8, 0.9, 0.9};

const Corrections& corrections_of(const Protocol& protocol) {
  if (protocol.name == "LL") return ll_corrections;
  return protocol.name == "LL128" ? ll128_corrections : simple_corrections;
}

}  // namespace

double tree_correction(const Protocol& protocol, double bytes) {
  const Corrections& by_size = corrections_of(protocol);
  const double place = std::log2(bytes / 64);
  if (!(place >= 0) || place >= static_cast<double>(by_size.size())) return 1;
  const auto below = static_cast<size_t>(place);
  const double next = below + 1 < by_size.size() ? by_size[below + 1] : 1;
  return by_size[below] + (place - static_cast<double>(below)) * (next - by_size[below]);
}

}  // namespace lockstep::cost
