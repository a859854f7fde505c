#include "plan/search_result.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>

#include "base/error.hpp"
#include "base/units.hpp"
#include "config/schema.hpp"
#include "plan/search_full_plans.hpp"

namespace lockstep::plan {

namespace {

constexpr size_t most_shown = 20, most_kept = 200, most_of_front = 12, most_neighbours = 9;
constexpr size_t plans_shown = most_shown + most_of_front + most_neighbours;

std::vector<std::string> held_texts(const config::RunFile& run, const std::set<std::string>& held) {
  std::vector<std::string> out;
  for (const std::string& key : searched_keys()) {
    if (held.count(key) == 0) continue;
    out.push_back(fmt::format("{} = {}", key, config::to_literal(read_key(*config::find_key(key), run))));
  }
  return out;
}

// Counts what is done, over the cuts of the GPUs and the plans that follow.
class Steps {
 public:
  explicit Steps(const SearchProgress& progress) : progress_(progress) {}
  void cuts(size_t done, size_t of) {
    cuts_ = static_cast<int64_t>(of);
    tell(static_cast<int64_t>(done));
  }
  void plan() { tell(cuts_ + ++plans_); }

 private:
  void tell(int64_t done) {
    const int64_t all = cuts_ + static_cast<int64_t>(plans_shown);
    if (progress_) progress_(std::min(done, all), all);
  }

  const SearchProgress& progress_;
  int64_t cuts_ = 0, plans_ = 0;
};

class CountedRanking : public Ranking {
 public:
  CountedRanking(double capacity, Steps& steps) : Ranking(capacity, most_kept), steps_(steps) {}
  void went_through(size_t cuts, size_t of) override { steps_.cuts(cuts, of); }

 private:
  Steps& steps_;
};

class Searcher {
 public:
  Searcher(const config::RunFile& run, const SearchProgress& progress)
      : run_(run),
        held_(keys_held_by_flags(run)),
        steps_(progress),
        search_(run, {run.train.global_batch}, held_),
        ranking_(run.cluster.memory_bytes, steps_),
        plans_(search_, [this] { steps_.plan(); }) {
    result_.run = run;
    result_.held = held_texts(run, held_);
  }

  SearchResult result() {
    search_.run_over(run_.cluster.gpus, ranking_);
    result_.evaluated = ranking_.evaluated();
    result_.valid = ranking_.valid();
    result_.left_out = ranking_.left_out();
    if (result_.evaluated == 0) refuse();
    result_.complete = plans_.add_fastest(ranking_, most_shown);
    result_.best = plans_.fastest(most_shown);
    if (result_.best.empty()) {
      const Plan& smallest = plans_.of(*ranking_.smallest());
      if (!smallest.memory.fits()) result_.closest = smallest;
    }
    if (!result_.closest) add_all();
    result_.difference = plans_.difference();
    return std::move(result_);
  }

 private:
  [[noreturn]] void refuse() const {
    constexpr size_t most_lines = 8;
    std::string with;
    for (const std::string& one : result_.held) with += (with.empty() ? " with " : ", ") + one;
    throw UsageError(fmt::format("no layout of {} GPUs{} is valid; of the ways to cut them:{}",
                                 format_thousands(run_.cluster.gpus), with,
                                 search_.why_none(run_.cluster.gpus, most_lines)));
  }

  // A neighbour may turn out to be faster than the best, which the search's own seconds are nearly: then it
  // is the best, with neighbours of its own.
  void add_all() {
    const Searched searched{run_, held_, search_, ranking_};
    result_.front = plans_.front(ranking_, most_of_front);
    result_.best = plans_.fastest(most_shown);
    for (double before = 0; before != result_.best.front().plan.step.seconds;) {
      const Plan& best = result_.best.front().plan;
      before = best.step.seconds;
      result_.neighbours = neighbours_of(best, searched, plans_);
      result_.best = plans_.fastest(most_shown);
    }
    result_.front = plans_.front(ranking_, most_of_front);
  }

  const config::RunFile& run_;
  std::set<std::string> held_;
  Steps steps_;
  LayoutSearch search_;
  CountedRanking ranking_;
  FullPlans plans_;
  SearchResult result_;
};

}  // namespace

SearchResult search_layouts(const config::RunFile& run, const SearchProgress& progress) {
  const auto start = std::chrono::steady_clock::now();
  SearchResult result = Searcher(run, progress).result();
  result.wall_seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  return result;
}

std::string nothing_fits(const SearchResult& result) {
  return fmt::format(
      "none of {} layouts fits; the smallest ({}) {}; give it more cluster.gpus, hold fewer keys, or set "
      "parallel.gradient_scatter=micro_batch (zero 2 and 3)",
      format_thousands(result.evaluated), cut_of(result.closest->run), does_not_fit(*result.closest));
}

}  // namespace lockstep::plan
