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
  bool chosen = false;                      // whether a choice among several was to be made
  std::vector<std::string> assumed;         // every key that the row does not give: "parallel.cp = 1 (why)"
  std::string reason;                       // why the row is skipped; empty: it is not
};

RowRuns runs_of(const Measurement& row, const SourceRule& rule);

}  // namespace lockstep::validate
