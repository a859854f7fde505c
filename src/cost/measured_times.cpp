#include "cost/measured_times.hpp"

#include <algorithm>
#include <cmath>
#include <iterator>

namespace lockstep::cost {

namespace {

// Straight in logarithms through (x0, y0) and (x1, y1).
double on_line(double x0, double y0, double x1, double y1, double x) {
  return y0 * std::pow(y1 / y0, std::log(x / x0) / std::log(x1 / x0));
}

// Beyond the points: the line of the two at the end, but neither falling nor steeper than in proportion.
double beyond(double x0, double y0, double x1, double y1, double x, double from, double y) {
  const double slope = std::clamp(std::log(y1 / y0) / std::log(x1 / x0), 0.0, 1.0);
  return y * std::pow(x / from, slope);
}

double on_curve(const std::map<double, double>& curve, double bytes) {
  const auto first = curve.begin(), last = std::prev(curve.end());
  const auto above = curve.lower_bound(bytes);
  if (above != curve.end() && above->first == bytes) return above->second;
  if (bytes <= 0) return first->second;
  if (above == curve.begin()) {
    if (curve.size() == 1) return first->second;
    const auto second = std::next(first);
    return beyond(first->first, first->second, second->first, second->second, bytes, first->first,
                  first->second);
  }
  if (above == curve.end()) {
    if (curve.size() == 1) return last->second * bytes / last->first;
    const auto before = std::prev(last);
    return beyond(before->first, before->second, last->first, last->second, bytes, last->first, last->second);
  }
  const auto below = std::prev(above);
  return on_line(below->first, below->second, above->first, above->second, bytes);
}

}  // namespace

MeasuredTimes::MeasuredTimes(const std::vector<config::TimedTransfer>& times) {
  for (const config::TimedTransfer& time : times) curves_[time.ranks][time.bytes] = time.seconds;
}

double MeasuredTimes::seconds(int ranks, double bytes) const {
  const auto above = curves_.lower_bound(ranks);
  if (above == curves_.end()) return on_curve(std::prev(above)->second, bytes);
  if (above->first == ranks || above == curves_.begin()) return on_curve(above->second, bytes);
  const auto below = std::prev(above);
  return on_line(static_cast<double>(below->first), on_curve(below->second, bytes),
                 static_cast<double>(above->first), on_curve(above->second, bytes), ranks);
}

}  // namespace lockstep::cost
