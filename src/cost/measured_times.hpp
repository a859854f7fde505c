// Times measured on a cluster, between the points that were measured.
#pragma once

#include <map>
#include <vector>

#include "config/run_file.hpp"

namespace lockstep::cost {

// Between two sizes, and between two numbers of ranks, times are straight in logarithms of both. Beyond the
// largest size the line through the last two goes on, but no time is below that of the nearest smaller size
// measured; with one size alone larger ones take time in proportion. Below the smallest size the line through
// the first two goes on, but no time is above the smallest's; with one size alone it stays. Numbers of ranks
// beyond the measured ones take the nearest.
class MeasuredTimes {
 public:
  // Positive ranks, bytes and seconds; where a point comes twice the last counts.
  explicit MeasuredTimes(const std::vector<config::TimedTransfer>& times);

  bool empty() const { return curves_.empty(); }
  // Not for an empty table. A transfer of no bytes takes what the smallest measured one does.
  double seconds(int ranks, double bytes) const;

 private:
  std::map<int64_t, std::map<double, double>> curves_;  // seconds by ranks and bytes
};

}  // namespace lockstep::cost
