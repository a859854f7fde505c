// What of a search is kept: counts, the fastest layouts, the Pareto front of time against memory, and the
// fastest of each way to cut, to say why it lost.
#pragma once

#include <functional>
#include <limits>
#include <map>
#include <optional>
#include <vector>

#include "plan/search.hpp"

namespace lockstep::plan {

// Relative, of a search's bytes against the full plan's (tests/plan/search_test.cpp holds drawn layouts to
// it): those within it of the capacity may fit or not.
inline constexpr double memory_accuracy = 0.01;

struct Ranked {
  SearchLayout layout;
  Evaluation evaluation;
  int64_t equivalents = 0;  // further layouts that are equivalent to this one
};

// Whether two layouts cut the GPUs alike and differ by less than 0.01 % in time and memory.
bool equivalent(const Ranked& a, const Ranked& b);

class Ranking : public LayoutSearch::Visitor {
 public:
  // `capacity`: bytes of a GPU. `most`: how many of the fastest are kept, of those that surely fit and of
  // those that may.
  Ranking(double capacity, size_t most) : capacity_(capacity), most_(most) {}

  void take(const SearchLayout& layout, const Evaluation& evaluation) override;
  void left_out(int64_t layouts) override { left_out_ += layouts; }

  int64_t evaluated() const { return evaluated_; }
  int64_t left_out() const { return left_out_; }
  int64_t valid() const { return valid_; }  // that fit by the search's bytes
  // That fit or may, fastest first. Of equivalent ones the first that came: a search goes from the simple to
  // the rest.
  std::vector<Ranked> fastest() const;
  // Seconds up to which `fastest` has all.
  double complete_until() const;
  // Of the layouts that surely fit those than which none is both faster and smaller: smallest first.
  const std::vector<Ranked>& front() const { return front_; }
  const std::optional<Ranked>& smallest() const { return smallest_; }  // of all layouts

  // A way to cut.
  struct Cut {
    int64_t tp = 1, cp = 1, pp = 1;
    bool one_chunk = true;
    bool zero_3 = false;
    auto operator<=>(const Cut&) const = default;
  };
  using Cuts = std::function<bool(const Cut&)>;
  // Of all layouts of some cuts: fastest first, up to the first that surely fits; those before it may.
  std::vector<Ranked> fastest_of(const Cuts& cuts) const;
  std::optional<Ranked> smallest_of(const Cuts& cuts) const;

 private:
  enum class Fit { surely, perhaps, no };
  // The fastest that may fit, at most so many; and the smallest.
  struct OfCut {
    std::optional<Ranked> surely, smallest;
    std::vector<Ranked> perhaps;
  };

  void note_cut(const Ranked& ranked, Fit fit);
  void note_front(const Ranked& ranked);

  double capacity_;
  size_t most_;
  int64_t evaluated_ = 0, valid_ = 0, left_out_ = 0;
  std::vector<Ranked> surely_, perhaps_;  // fastest first
  std::vector<Ranked> front_;
  std::optional<Ranked> smallest_;
  std::map<Cut, OfCut> cuts_;
  std::pair<const Cut, OfCut>* newest_cut_ = nullptr;
};

}  // namespace lockstep::plan
