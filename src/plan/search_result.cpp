#include "plan/search_result.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <limits>

#include "base/error.hpp"
#include "base/units.hpp"
#include "config/rules.hpp"
#include "config/schema.hpp"
#include "plan/search_ranking.hpp"

namespace lockstep::plan {

namespace {

constexpr size_t most_shown = 20, most_kept = 50, most_of_front = 12, most_neighbours = 7;
constexpr size_t plans_shown = most_shown + most_of_front + most_neighbours;

double bytes_of(const Plan& plan) { return static_cast<double>(plan.memory.fullest().total()); }

std::string does_not_fit(const Plan& plan) {
  return fmt::format("does not fit: {} of {}", format_bytes(bytes_of(plan)),
                     format_bytes(static_cast<double>(plan.memory.capacity)));
}

std::string cut_of(const config::RunFile& run) {
  const config::ParallelConfig& p = run.parallel;
  return fmt::format("tp {} cp {} pp {} dp {}", p.tp, p.cp, p.pp, p.dp);
}

// What takes most more of the step than in the best layout.
std::string why_slower(const Plan& plan, const Plan& best) {
  constexpr std::array<std::string_view, 9> words = {"waiting for data", "computing", "tp waits",
                                                     "cp waits",         "pp waits",  "dp waits",
                                                     "bubble",           "optimizer", "barrier"};
  const auto of = plan.step.split.values(), of_best = best.step.split.values();
  size_t most = 0;
  for (size_t i = 1; i < words.size(); ++i) {
    if (of[i] - of_best[i] > of[most] - of_best[most]) most = i;
  }
  const double slower = plan.step.seconds / best.step.seconds - 1;
  if (slower < 0.0005) return "as fast";
  return fmt::format("{:.1f} % slower: {} {} against {}", 100 * slower, words[most], format_seconds(of[most]),
                     format_seconds(of_best[most]));
}

std::string why(const Plan& plan, const Plan& best) {
  return plan.memory.fits() ? why_slower(plan, best) : does_not_fit(plan);
}

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
        ranking_(run.cluster.memory_bytes, steps_) {
    result_.run = run;
    result_.held = held_texts(run, held_);
  }

  SearchResult result() {
    search_.run_over(run_.cluster.gpus, ranking_);
    result_.evaluated = ranking_.evaluated();
    result_.valid = ranking_.valid();
    result_.left_out = ranking_.left_out();
    if (result_.evaluated == 0) refuse();
    add_best();
    if (result_.best.empty()) {
      Plan smallest = plan_again(*ranking_.smallest());
      if (smallest.memory.fits()) {
        result_.front.push_back(smallest);
        result_.best.push_back({std::move(smallest), 0});
      } else {
        result_.closest = std::move(smallest);
      }
      return std::move(result_);
    }
    add_front();
    add_neighbours();
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

  // The full plan of a layout, and how far from it the search was. One after another, and without the curve:
  // a program of millions of passes takes a gigabyte.
  Plan plan_again(const Ranked& ranked) {
    for (const auto& [layout, plan] : planned_) {
      if (layout == ranked.layout) return plan;
    }
    Plan plan = plan_of(search_.run_of(ranked.layout));
    plan.curve = {};
    planned_.push_back({ranked.layout, plan});
    result_.difference =
        std::max({result_.difference, std::abs(ranked.evaluation.seconds / plan.step.seconds - 1),
                  std::abs(ranked.evaluation.bytes / bytes_of(plan) - 1)});
    steps_.plan();
    return plan;
  }

  void add_best() {
    for (const Ranked& ranked : ranking_.best()) {
      if (result_.best.size() == most_shown) break;
      Plan plan = plan_again(ranked);  // which has the last word where the search was a percent off
      if (plan.memory.fits()) result_.best.push_back({std::move(plan), ranked.twins});
    }
    std::stable_sort(result_.best.begin(), result_.best.end(), [](const RankedPlan& a, const RankedPlan& b) {
      return a.plan.step.seconds < b.plan.step.seconds;
    });
  }

  void add_front() {
    const std::vector<Ranked>& front = ranking_.front();
    const size_t shown = std::min(front.size(), most_of_front);
    for (size_t i = 0; i < shown; ++i) {  // evenly, both ends among them
      const size_t at = shown == 1 ? 0 : i * (front.size() - 1) / (shown - 1);
      Plan plan = plan_again(front[at]);
      if (plan.memory.fits()) result_.front.push_back(std::move(plan));
    }
  }

  // Cuts near the best one, each with the best of everything else.
  void add_neighbours() {
    add_own();
    const SearchLayout& top = ranking_.best().front().layout;
    const auto with = [](int64_t Ranking::Cut::*axis, int64_t value) {
      return [=](Ranking::Cut& c) {
        c.*axis = value;
        return true;
      };
    };
    add("tp x 2", with(&Ranking::Cut::tp, 2 * top.tp));
    if (top.tp % 2 == 0) add("tp / 2", with(&Ranking::Cut::tp, top.tp / 2));
    add("pp x 2", with(&Ranking::Cut::pp, 2 * top.pp));
    if (top.pp % 2 == 0) add("pp / 2", with(&Ranking::Cut::pp, top.pp / 2));
    if (top.virtual_stages > 1) add("one chunk a stage", [](Ranking::Cut& c) { return c.one_chunk; });
    add("FSDP alone", [](Ranking::Cut& c) {
      c.tp = c.cp = c.pp = 1;
      return c.zero_3;
    });
  }

  // The run file's own layout need not be valid on these GPUs.
  void add_own() {
    const std::string what = fmt::format("the run file's own ({})", cut_of(run_));
    std::vector<config::Problem> problems;
    config::check_rules(run_, {}, problems);
    if (problems.empty()) {
      Plan own = plan_of(run_);
      result_.neighbours.push_back({what, why(own, result_.best.front().plan)});
      return;
    }
    std::string keys;
    for (const config::Problem& one : problems) keys += (keys.empty() ? "" : ", ") + one.key;
    result_.neighbours.push_back({what, "breaks rules of " + keys});
  }

  template <class FitsIn>
  void add(const std::string& what, FitsIn fits_in) {
    const SearchLayout& top = ranking_.best().front().layout;
    const double capacity = run_.cluster.memory_bytes;
    const auto better = [&](const Ranked& a, const Ranked& b) {
      const bool fits = a.evaluation.bytes <= capacity, other = b.evaluation.bytes <= capacity;
      if (fits != other) return fits;
      return fits ? a.evaluation.seconds < b.evaluation.seconds : a.evaluation.bytes < b.evaluation.bytes;
    };
    std::optional<Ranked> found;
    std::optional<Ranking::Cut> first;
    for (const bool one_chunk : {false, true}) {
      for (const bool zero_3 : {false, true}) {
        Ranking::Cut cut{top.tp, top.cp, top.pp, one_chunk, zero_3};
        if (!fits_in(cut)) continue;
        if (!first) first = cut;
        const auto ranked = ranking_.best_of(cut);
        if (ranked && (!found || better(*ranked, *found))) found = ranked;
      }
    }
    if (!found) return result_.neighbours.push_back({what, why_none(*first)}), void();
    const Plan plan = plan_again(*found);
    result_.neighbours.push_back(
        {fmt::format("{} ({})", what, cut_of(plan.run)), why(plan, result_.best.front().plan)});
  }

  std::string why_none(const Ranking::Cut& cut) const {
    const auto is_held = [&](const char* key, int64_t own, int64_t value) {
      return held_.count(key) > 0 && own != value;
    };
    const config::ParallelConfig& p = run_.parallel;
    for (const auto& [key, own, value] : {std::tuple{"parallel.tp", p.tp, cut.tp},
                                          {"parallel.cp", p.cp, cut.cp},
                                          {"parallel.pp", p.pp, cut.pp}}) {
      if (is_held(key, own, value)) return fmt::format("{} is held at {}", key, own);
    }
    if (cut.zero_3 && is_held("parallel.zero", p.zero, 3)) {
      return fmt::format("parallel.zero is held at {}", p.zero);
    }
    const std::string why = search_.why_none(run_.cluster.gpus, cut.tp, cut.cp, cut.pp, cut.zero_3 ? 3 : 0);
    return why.empty() ? "none that the search tries is valid" : why;
  }

  const config::RunFile& run_;
  std::set<std::string> held_;
  Steps steps_;
  LayoutSearch search_;
  CountedRanking ranking_;
  std::vector<std::pair<SearchLayout, Plan>> planned_;
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
  return fmt::format("none of {} layouts fits; the smallest ({}) {}; give it more cluster.gpus",
                     format_thousands(result.evaluated), cut_of(result.closest->run),
                     does_not_fit(*result.closest));
}

}  // namespace lockstep::plan
