// A curve as a few lines of text.
#pragma once

#include <string>
#include <vector>

namespace lockstep::plan {

// Values from 0 up, in their order, from left to right; where there are more than columns a column shows the
// highest of its own. Beside the first line stands what its top is, in `unit`. Empty without values.
std::string chart_text(const std::vector<double>& values, const std::string& unit);

}  // namespace lockstep::plan
