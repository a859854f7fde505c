// What of a search is kept: counts, the best layouts, the Pareto front of time against memory, and the best
// of each way to cut, to say why it lost.
#pragma once

#include <map>
#include <optional>
#include <tuple>
#include <vector>

#include "plan/search.hpp"

namespace lockstep::plan {

struct Ranked {
  SearchLayout layout;
  Evaluation evaluation;
  int64_t twins =
      0;  // further layouts with the same cut of the GPUs whose time and memory differ by < 0.01 %
};

class Ranking : public LayoutSearch::Visitor {
 public:
  // `capacity`: bytes of a GPU. `most`: how many of the best are kept.
  Ranking(double capacity, size_t most) : capacity_(capacity), most_(most) {}

  void take(const SearchLayout& layout, const Evaluation& evaluation) override;
  void left_out(int64_t layouts) override { left_out_ += layouts; }

  int64_t evaluated() const { return evaluated_; }
  int64_t left_out() const { return left_out_; }
  int64_t valid() const { return valid_; }  // that fit
  // That fit, fastest first. Of twins the first that came: a search goes from the simple to the rest.
  const std::vector<Ranked>& best() const { return best_; }
  // Of the layouts that fit those than which none is both faster and smaller: smallest first.
  const std::vector<Ranked>& front() const { return front_; }
  const std::optional<Ranked>& smallest() const { return smallest_; }  // of all layouts

  // A way to cut: the fastest that fits, else the smallest.
  struct Cut {
    int64_t tp = 1, cp = 1, pp = 1;
    bool one_chunk = true;
    bool zero_3 = false;
    auto operator<=>(const Cut&) const = default;
  };
  std::optional<Ranked> best_of(const Cut& cut) const;

 private:
  void note_cut(const Ranked& ranked, bool fits);
  void note_best(const Ranked& ranked);
  bool is_twin(const Ranked& ranked);
  void note_front(const Ranked& ranked);

  struct OfCut {
    std::optional<Ranked> fastest, smallest;  // that fits; of all
  };
  double capacity_;
  size_t most_;
  int64_t evaluated_ = 0, valid_ = 0, left_out_ = 0;
  std::vector<Ranked> best_, front_;
  std::optional<Ranked> smallest_;
  std::map<Cut, OfCut> cuts_;
  std::pair<const Cut, OfCut>* newest_cut_ = nullptr;
};

}  // namespace lockstep::plan
