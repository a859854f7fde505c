// Rules that hold between keys: divisibility, the world size, layers and chunks.
#pragma once

#include <set>
#include <string>
#include <vector>

#include "config/problem.hpp"
#include "config/run_file.hpp"

namespace lockstep::config {

// Appends what is broken. A rule is left out when one of its keys is in `bad` (already reported, or missing).
void check_rules(const RunFile& run, const std::set<std::string>& bad, std::vector<Problem>& problems);

// A problem of a key as `run` has it, with the place where the key was set.
Problem problem_of(const RunFile& run, const std::string& key, const std::string& rule);

}  // namespace lockstep::config
