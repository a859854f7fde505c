// What `lockstep plan --search` says.
#pragma once

#include <string>
#include <vector>

#include "base/json_fwd.hpp"
#include "cost/text.hpp"
#include "plan/report.hpp"

namespace lockstep::plan {

// A layout that a reader may expect to win, and why it does not.
struct Neighbour {
  std::string what;  // "the run file's own", "tp x 2 = 16"
  std::string why;   // "does not fit: 93.1 GB of 80.0 GB"
};

struct SearchResult {
  config::RunFile run;      // that was asked for
  std::vector<Plan> best;   // fastest first, at most 20; as the full plan has them
  std::vector<Plan> front;  // of those that fit none is both faster and smaller; smallest first
  std::vector<Neighbour> neighbours;
  int64_t evaluated = 0;    // layouts, in memory and time
  int64_t valid = 0;        // of those that fit
  double wall_seconds = 0;  // of the search, without the plans that are shown
  double difference = 0;    // largest relative difference between search and plan, of what is shown
};

// Layouts of the run's model on its GPUs with its batch. `run` has passed config's rules. RunError when none
// fits.
SearchResult search_layouts(const config::RunFile& run);

Json search_json(const SearchResult& result);
std::string search_text(const SearchResult& result, const cost::Style& style);

}  // namespace lockstep::plan
