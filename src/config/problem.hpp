// One thing that is wrong with a run file, in parts, so that tests can apply the proposed value.
#pragma once

#include <string>
#include <vector>

namespace lockstep::config {

struct Problem {
  std::string where;    // "file:line", "--set ...", "preset ..." or the file, for keys that nobody wrote
  std::string key;      // "parallel.tp"; empty when it is no key's
  std::string value;    // literal; empty when there is none
  std::string rule;     // what is broken
  std::string fix_key;  // key to change, `key` itself or another
  std::string fix;      // literal of the nearest value that works; empty: none can be named
};

// "file:line: key = value: rule; nearest value that works: X"
std::string to_string(const Problem& problem);

// One line a problem.
std::string to_string(const std::vector<Problem>& problems);

}  // namespace lockstep::config
