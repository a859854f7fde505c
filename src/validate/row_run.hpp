// From a row to the run files that it may have been: one where it says everything, several where micro-batch
// or virtual stages are to be chosen.
#pragma once

#include <string>
#include <vector>

#include "config/run_file.hpp"
#include "validate/measurement.hpp"
#include "validate/sources.hpp"

namespace lockstep::validate {

struct RowRuns {
  std::vector<config::RunFile> candidates;  // all valid; empty where the row is skipped
  config::RunFile as_published;             // the first, without what was set: what is measured follows it
  bool chosen = false;                      // whether a choice among several was to be made
  std::vector<std::string> assumed;         // every key that the row does not give: "parallel.cp = 1 (why)"
  std::string reason;                       // why the row is skipped; empty: it is not
  std::string refused_settings;             // what is wrong with `settings`, where they are why
};

// `settings` are "table.key=value", as of --set: each overrides a key of every candidate, presets included.
// UsageError for one that cannot be read at all.
RowRuns runs_of(const Measurement& row, const SourceRule& rule, const std::vector<std::string>& settings);

}  // namespace lockstep::validate
