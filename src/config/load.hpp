// Loading in steps: what load_run_file throws as one error comes back here as a list.
#pragma once

#include <set>
#include <string>
#include <vector>

#include "config/problem.hpp"
#include "config/run_file.hpp"

namespace lockstep::config {

struct Examined {
  RunFile run;                    // whole only when there are no problems
  std::vector<Problem> problems;  // unknown tables and keys, then single values, then the rules between keys
};

// `file` names the text in messages and is where relative paths start. Throws UsageError for text that is not
// TOML and for an override that cannot be read at all. `unchosen`: keys ("parallel.tp") whose values are
// still to be chosen: each has passed its own rule, those between it and other keys are not checked.
Examined examine_run_text(const std::string& text, const std::filesystem::path& file,
                          const std::vector<std::string>& overrides,
                          const std::set<std::string>& unchosen = {});

}  // namespace lockstep::config
