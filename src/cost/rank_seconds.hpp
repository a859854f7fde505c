// Seconds by global rank, of which there are few different ones.
#pragma once

#include <memory>
#include <utility>
#include <vector>

namespace lockstep::cost {

class RankSeconds {
 public:
  RankSeconds() = default;
  // `kind_of`: by rank, which of `kinds` it has; null: all have the only one.
  RankSeconds(size_t ranks, std::vector<double> kinds, std::shared_ptr<const std::vector<int>> kind_of)
      : ranks_(ranks), kinds_(std::move(kinds)), kind_of_(std::move(kind_of)) {}
  static RankSeconds same_for_all(size_t ranks, double seconds) { return {ranks, {seconds}, nullptr}; }
  // Of any values: a kind for each.
  static RankSeconds of_each(std::vector<double> seconds) {
    auto kind_of = std::make_shared<std::vector<int>>(seconds.size());
    for (size_t rank = 0; rank < seconds.size(); ++rank) (*kind_of)[rank] = static_cast<int>(rank);
    const size_t ranks = seconds.size();
    return {ranks, std::move(seconds), std::move(kind_of)};
  }

  size_t size() const { return ranks_; }
  bool is_same_for_all() const { return kind_of_ == nullptr; }
  double operator[](size_t rank) const {
    return kinds_[kind_of_ == nullptr ? 0 : static_cast<size_t>((*kind_of_)[rank])];
  }
  const std::vector<double>& kinds() const { return kinds_; }
  const std::shared_ptr<const std::vector<int>>& kind_of() const { return kind_of_; }  // null: the only one
  std::vector<double>& kinds() { return kinds_; }

  std::vector<double> by_rank() const {
    std::vector<double> out;
    out.reserve(ranks_);
    for (size_t rank = 0; rank < ranks_; ++rank) out.push_back((*this)[rank]);
    return out;
  }

 private:
  size_t ranks_ = 0;
  std::vector<double> kinds_;
  std::shared_ptr<const std::vector<int>> kind_of_;
};

}  // namespace lockstep::cost
