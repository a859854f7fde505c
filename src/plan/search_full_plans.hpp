// Layouts of a search that are planned in full, each once: what the report shows of them.
#pragma once

#include <deque>
#include <functional>
#include <string>
#include <vector>

#include "plan/report.hpp"
#include "plan/search_ranking.hpp"

namespace lockstep::plan {

struct RankedPlan {
  Plan plan;                // without its memory curve
  int64_t equivalents = 0;  // further layouts with the same cut of the GPUs and, as printed, figures
};

// Of the fullest GPU.
double bytes_of(const Plan& plan);
// "does not fit: 93.1 GB of 80.0 GB".
std::string does_not_fit(const Plan& plan);

class FullPlans {
 public:
  // `planned` is told of each.
  FullPlans(const LayoutSearch& search, std::function<void()> planned)
      : search_(search), told_(std::move(planned)) {}

  // One after another, and without the curve: a program of millions of passes takes a gigabyte.
  const Plan& of(const Ranked& ranked) { return add(ranked, false); }
  // Plans of the fastest until `most` that a reader can tell apart fit, and none that is left can be faster
  // than all of them. False when there may be others as fast, of which the ranking does not know.
  bool add_fastest(const Ranking& ranking, size_t most);

  // Those that fit, fastest first, at most so many.
  std::vector<RankedPlan> fastest(size_t most) const;
  // Those of the ranking's front, `most` that lie evenly in it, and the fastest of all: without what does not
  // fit, and what another plan is faster and smaller than. Smallest first.
  std::vector<Plan> front(const Ranking& ranking, size_t most);
  // Largest relative difference between search and plan.
  double difference() const { return difference_; }

 private:
  struct Planned {
    Ranked ranked;
    Plan plan;
    bool of_fastest = false;  // with all of its equivalents
  };
  const Plan& add(const Ranked& ranked, bool of_fastest);
  std::vector<const Planned*> by_time() const;

  const LayoutSearch& search_;
  std::function<void()> told_;
  std::deque<Planned> planned_;  // places stay
  double difference_ = 0;
};

}  // namespace lockstep::plan
