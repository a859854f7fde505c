// A value for every lane of a stage; kept once where all lanes have the same.
#pragma once

#include <algorithm>
#include <functional>
#include <utility>
#include <vector>

namespace lockstep::sim {

class PerLane {
 public:
  PerLane(double value = 0) : values_{value} {}
  // As many values as lanes, or one.
  explicit PerLane(std::vector<double> values) : values_(std::move(values)) {
    if (std::adjacent_find(values_.begin(), values_.end(), std::not_equal_to<>()) == values_.end()) {
      values_.resize(1);
    }
  }

  bool is_same_for_all() const { return values_.size() == 1; }
  double operator[](size_t lane) const { return values_[is_same_for_all() ? 0 : lane]; }
  const double* data() const { return values_.data(); }
  double highest() const { return *std::max_element(values_.begin(), values_.end()); }

 private:
  std::vector<double> values_;
};

}  // namespace lockstep::sim
