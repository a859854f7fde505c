#include "cluster/kernel_curve.hpp"

#include <algorithm>
#include <cmath>

namespace lockstep::cluster {

KernelCurve::KernelCurve(double peak, double constant, const config::Curve& curve)
    : peak_(peak), points_(curve.empty() ? config::Curve{{1, constant}} : curve) {}

double KernelCurve::share(double size) const {
  const auto next =
      std::upper_bound(points_.begin(), points_.end(), size,
                       [](double at, const config::CurvePoint& point) { return at < point.at; });
  if (next == points_.begin()) return next->value;
  const config::CurvePoint& low = *std::prev(next);
  if (next == points_.end()) return low.value;
  const double way = std::log(size / low.at) / std::log(next->at / low.at);
  return low.value + (next->value - low.value) * way;
}

double KernelCurve::seconds(double size) const {
  double longest = size / share(size);
  // On a segment where the share rises, size / (a + b log size) first falls and then climbs: of all smaller
  // sizes the slowest is one of the points.
  for (const config::CurvePoint& point : points_) {
    if (point.at <= size) longest = std::max(longest, point.at / point.value);
  }
  return longest / peak_;
}

}  // namespace lockstep::cluster
