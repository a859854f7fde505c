// A search's layouts, planned again in full: what `lockstep plan --search` reports.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "plan/search_neighbours.hpp"

namespace lockstep::plan {

struct SearchResult {
  config::RunFile run;            // that was asked for
  std::vector<std::string> held;  // "parallel.tp = 4"
  std::vector<RankedPlan> best;   // fastest first, at most 20; empty: none fits
  std::vector<Plan> front;        // of those that fit none is both faster and smaller; smallest first
  std::vector<Neighbour> neighbours;
  std::optional<Plan> closest;  // the smallest, where none fits
  int64_t evaluated = 0;        // layouts, in memory and time
  int64_t valid = 0;            // of those that fit by the search's bytes, within 1 % of the full plan's
  int64_t left_out = 0;         // for their number of passes a step
  bool complete = true;         // no other layout can be as fast as one of `best`, nor fill its places
  double wall_seconds = 0;      // of all of it
  double difference = 0;        // largest relative difference between search and plan, of what is shown
};

// Told how much is done: of the cuts of the GPUs, and of the plans that are shown.
using SearchProgress = std::function<void(int64_t done, int64_t of)>;

// Layouts of the run's model on cluster.gpus with its batch; what --set gave of them is held. `run` has
// passed config's rules but for those of unchosen_keys(). UsageError when no layout is valid, or the run says
// what a search does not count.
SearchResult search_layouts(const config::RunFile& run, const SearchProgress& progress = {});

// "none of 1,234 layouts fits; ..."; of a result without a best layout.
std::string nothing_fits(const SearchResult& result);

}  // namespace lockstep::plan
