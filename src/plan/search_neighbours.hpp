// Layouts that a reader of a search may expect to win, and why they do not.
#pragma once

#include <optional>
#include <set>
#include <string>
#include <vector>

#include "plan/search_full_plans.hpp"

namespace lockstep::plan {

struct Neighbour {
  std::string what;          // "tp x 2 (tp 4 cp 4 pp 8 dp 128)"
  std::string why;           // "does not fit: 93.1 GB of 80.0 GB"
  std::optional<Plan> plan;  // where such a layout is valid
};

// "tp 4 cp 4 pp 8 dp 128".
std::string cut_of(const config::RunFile& run);

struct Searched {
  const config::RunFile& run;         // that was asked for
  const std::set<std::string>& held;  // its keys
  const LayoutSearch& search;
  const Ranking& ranking;
};

// The run's own layout; and of all layouts with twice or half the best one's tp, cp or pp, with one chunk a
// stage, and sharded alone, whatever else they have: the fastest that fits, else the smallest. Planned in
// full, and held against `best`.
std::vector<Neighbour> neighbours_of(const Plan& best, const Searched& searched, FullPlans& plans);

}  // namespace lockstep::plan
