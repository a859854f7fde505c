#include "config/problem.hpp"

#include <fmt/format.h>

#include "config/value.hpp"

namespace lockstep::config {

std::string to_string(const Problem& problem) {
  std::string text = problem.where;
  if (!problem.key.empty()) text += fmt::format(": {}", problem.key);
  if (!problem.value.empty()) text += fmt::format(" = {}", shortened(problem.value));
  text += fmt::format(": {}", problem.rule);
  if (!problem.fix.empty()) {
    const bool other = problem.fix_key != problem.key;
    text +=
        fmt::format("; nearest value that works: {}{}", other ? problem.fix_key + " = " : "", problem.fix);
  }
  return text;
}

std::string to_string(const std::vector<Problem>& problems) {
  std::string text;
  for (const Problem& problem : problems) text += (text.empty() ? "" : "\n") + to_string(problem);
  return text;
}

}  // namespace lockstep::config
