#include "plan/search_neighbours.hpp"

#include <fmt/format.h>

#include <array>
#include <cmath>
#include <tuple>

#include "base/units.hpp"
#include "config/rules.hpp"

namespace lockstep::plan {

namespace {

using Cut = Ranking::Cut;

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
  if (std::abs(slower) < 0.0005) return "as fast";
  // The run's own may be what a search does not try.
  if (slower < 0) return fmt::format("{:.1f} % faster", -100 * slower);
  return fmt::format("{:.1f} % slower: {} {} against {}", 100 * slower, words[most], format_seconds(of[most]),
                     format_seconds(of_best[most]));
}

class Neighbours {
 public:
  Neighbours(const Plan& best, const Searched& searched, FullPlans& plans)
      : best_(best), searched_(searched), plans_(plans) {}

  std::vector<Neighbour> all() {
    add_own();
    add_sizes("tp", &Cut::tp, best_.run.parallel.tp, true);
    add_sizes("cp", &Cut::cp, best_.run.parallel.cp, false);
    add_sizes("pp", &Cut::pp, best_.run.parallel.pp, true);
    if (best_.run.parallel.virtual_stages > 1) {
      add("one chunk a stage", [](const Cut& cut) { return cut.one_chunk; });
    }
    const Cut sharded{1, 1, 1, true, true};
    const auto is_sharded = [](const Cut& cut) {
      return cut.tp == 1 && cut.cp == 1 && cut.pp == 1 && cut.zero_3;
    };
    if (!add("FSDP alone", is_sharded)) out_.push_back({"FSDP alone", why_none(sharded), {}});
    return std::move(out_);
  }

 private:
  // The run file's own layout need not be valid on these GPUs.
  void add_own() {
    config::RunFile run = searched_.run;
    const std::string what = fmt::format("the run file's own ({})", cut_of(run));
    std::vector<config::Problem> problems;
    config::check_rules(run, {}, problems);
    if (!problems.empty()) {
      std::string keys;
      for (const config::Problem& one : problems) keys += (keys.empty() ? "" : ", ") + one.key;
      return out_.push_back({what, "breaks rules of " + keys, {}}), void();
    }
    run.train.batch_ramp.clear();
    add_plan(what, plan_of(run));
  }

  // Where there are none: with `always`, why. More context than the search tries is no news.
  void add_sizes(const std::string& axis, int64_t Cut::*size, int64_t of_best, bool always) {
    const auto add_size = [&](const std::string& what, int64_t value) {
      if (add(what, [=](const Cut& cut) { return cut.*size == value; }) || !always) return;
      Cut cut{best_.run.parallel.tp, best_.run.parallel.cp, best_.run.parallel.pp, true, false};
      cut.*size = value;
      out_.push_back({what, why_none(cut), {}});
    };
    add_size(axis + " x 2", 2 * of_best);
    if (of_best % 2 == 0) add_size(axis + " / 2", of_best / 2);
  }

  // False: there are none.
  bool add(const std::string& what, const Ranking::Cuts& cuts) {
    const auto plan_found = [&](const Ranked& ranked) {
      const Plan& plan = plans_.of(ranked);
      add_plan(fmt::format("{} ({})", what, cut_of(plan.run)), plan);
    };
    for (const Ranked& ranked : searched_.ranking.fastest_of(cuts)) {
      if (plans_.of(ranked).memory.fits()) return plan_found(ranked), true;
    }
    const std::optional<Ranked> smallest = searched_.ranking.smallest_of(cuts);
    if (smallest) plan_found(*smallest);
    return smallest.has_value();
  }

  void add_plan(const std::string& what, const Plan& plan) {
    out_.push_back({what, plan.memory.fits() ? why_slower(plan, best_) : does_not_fit(plan), plan});
  }

  // With the best one's other sizes where these divide the GPUs, else alone.
  std::string why_none(Cut cut) const {
    const config::ParallelConfig& p = searched_.run.parallel;
    const int64_t gpus = searched_.run.cluster.gpus;
    for (const auto& [key, own, value] : {std::tuple{"parallel.tp", p.tp, cut.tp},
                                          {"parallel.cp", p.cp, cut.cp},
                                          {"parallel.pp", p.pp, cut.pp},
                                          {"parallel.zero", p.zero, cut.zero_3 ? 3 : p.zero}}) {
      if (searched_.held.count(key) > 0 && own != value) return fmt::format("{} is held at {}", key, own);
    }
    if (gpus % (cut.tp * cut.cp * cut.pp) != 0) {
      const config::ParallelConfig& best = best_.run.parallel;
      if (cut.tp == best.tp) cut.tp = 1;
      if (cut.cp == best.cp) cut.cp = 1;
      if (cut.pp == best.pp) cut.pp = 1;
    }
    const std::string why = searched_.search.why_none(gpus, cut.tp, cut.cp, cut.pp, cut.zero_3 ? 3 : 0);
    return why.empty() ? "none that the search tries is valid" : why;
  }

  const Plan& best_;
  const Searched& searched_;
  FullPlans& plans_;
  std::vector<Neighbour> out_;
};

}  // namespace

std::string cut_of(const config::RunFile& run) {
  const config::ParallelConfig& p = run.parallel;
  return fmt::format("tp {} cp {} pp {} dp {}", p.tp, p.cp, p.pp, p.dp);
}

std::vector<Neighbour> neighbours_of(const Plan& best, const Searched& searched, FullPlans& plans) {
  return Neighbours(best, searched, plans).all();
}

}  // namespace lockstep::plan
