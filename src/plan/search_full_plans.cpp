#include "plan/search_full_plans.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <set>

#include "base/units.hpp"

namespace lockstep::plan {

namespace {

// Relative, of a search's seconds against the full plan's (tests/plan/search_test.cpp).
constexpr double time_accuracy = 0.02;

// What a reader can tell two rows of the table by, but for the layout within the cut.
std::string printed(const Plan& plan) {
  const config::ParallelConfig& p = plan.run.parallel;
  return fmt::format("{} {} {} {} {} {} {}", format_seconds(plan.step.seconds), cost::percent(plan.step.mfu),
                     format_bytes(bytes_of(plan)), p.tp, p.cp, p.pp, p.dp);
}

// In one of time and memory better, in none worse.
bool beats(const Plan& a, const Plan& b) {
  const double time = a.step.seconds - b.step.seconds, memory = bytes_of(a) - bytes_of(b);
  return time <= 0 && memory <= 0 && (time < 0 || memory < 0);
}

}  // namespace

double bytes_of(const Plan& plan) { return static_cast<double>(plan.memory.fullest().total()); }

std::string does_not_fit(const Plan& plan) {
  return fmt::format("does not fit: {} of {}", format_bytes(bytes_of(plan)),
                     format_bytes(static_cast<double>(plan.memory.capacity)));
}

const Plan& FullPlans::add(const Ranked& ranked, bool of_fastest) {
  for (const Planned& one : planned_) {
    if (one.ranked.layout == ranked.layout) return one.plan;
  }
  Plan plan = plan_of(search_.run_of(ranked.layout));
  plan.curve = {};
  difference_ = std::max({difference_, std::abs(ranked.evaluation.seconds / plan.step.seconds - 1),
                          std::abs(ranked.evaluation.bytes / bytes_of(plan) - 1)});
  planned_.push_back({ranked, std::move(plan), of_fastest});
  told_();
  return planned_.back().plan;
}

bool FullPlans::add_fastest(const Ranking& ranking, size_t most) {
  std::set<std::string> rows;
  double least = 0, reached = 0;
  for (const Ranked& ranked : ranking.fastest()) {
    const double seconds = ranked.evaluation.seconds;
    if (rows.size() >= most && seconds > (1 + time_accuracy) * least) break;
    reached = seconds;
    const Plan& plan = add(ranked, true);
    if (!plan.memory.fits()) continue;
    if (rows.empty() || plan.step.seconds < least) least = plan.step.seconds;
    rows.insert(printed(plan));
  }
  return rows.size() >= most ? reached <= ranking.complete_until() : std::isinf(ranking.complete_until());
}

std::vector<const FullPlans::Planned*> FullPlans::by_time() const {
  std::vector<const Planned*> out;
  for (const Planned& one : planned_) {
    if (one.plan.memory.fits()) out.push_back(&one);
  }
  std::stable_sort(out.begin(), out.end(), [](const Planned* a, const Planned* b) {
    return a->plan.step.seconds < b->plan.step.seconds;
  });
  return out;
}

std::vector<RankedPlan> FullPlans::fastest(size_t most) const {
  // One of another table need not be new: the ranking counts it as an equivalent.
  const auto counted = [&](const Planned& one) {
    return !one.of_fastest && std::any_of(planned_.begin(), planned_.end(), [&](const Planned& other) {
      return other.of_fastest && other.ranked.equivalents > 0 && equivalent(other.ranked, one.ranked);
    });
  };
  std::vector<RankedPlan> out;
  std::vector<std::string> rows;
  for (const Planned* one : by_time()) {
    if (counted(*one)) continue;
    const std::string row = printed(one->plan);
    const auto found = std::find(rows.begin(), rows.end(), row);
    if (found != rows.end()) {
      out[static_cast<size_t>(found - rows.begin())].equivalents += 1 + one->ranked.equivalents;
    } else if (out.size() < most) {
      rows.push_back(row);
      out.push_back({one->plan, one->ranked.equivalents});
    }
  }
  return out;
}

std::vector<Plan> FullPlans::front(const Ranking& ranking, size_t most) {
  const std::vector<Ranked>& front = ranking.front();
  const size_t shown = std::min(front.size(), most);
  std::vector<const Plan*> plans;
  for (size_t i = 0; i < shown; ++i) {  // evenly, both ends among them
    plans.push_back(&of(front[shown == 1 ? 0 : i * (front.size() - 1) / (shown - 1)]));
  }
  const std::vector<const Planned*> fit = by_time();
  if (!fit.empty()) plans.push_back(&fit.front()->plan);
  std::stable_sort(plans.begin(), plans.end(),
                   [](const Plan* a, const Plan* b) { return bytes_of(*a) < bytes_of(*b); });
  std::vector<Plan> out;
  for (const Plan* plan : plans) {
    const bool beaten =
        std::any_of(fit.begin(), fit.end(), [&](const Planned* other) { return beats(other->plan, *plan); });
    const bool again = !out.empty() && bytes_of(out.back()) == bytes_of(*plan);
    if (plan->memory.fits() && !beaten && !again) out.push_back(*plan);
  }
  return out;
}

}  // namespace lockstep::plan
