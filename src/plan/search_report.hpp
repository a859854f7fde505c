// What `lockstep plan --search` says.
#pragma once

#include <string>

#include "base/json_fwd.hpp"
#include "cost/text.hpp"
#include "plan/search_result.hpp"

namespace lockstep::plan {

// layouts [of plan_json, and equivalents: how many further layouts have the same cut and printed figures],
// pareto, neighbours [{what why}], held, ignored [keys of the run that all layouts do without], evaluated,
// left_out, valid [that fit by the search's own bytes, so about as many], complete [whether no other layout
// can be as fast as one of `layouts`], wall_seconds, largest_difference [relative, of search and plan].
// With nothing that fits: no layouts, but `reason` and `closest`.
Json search_json(const SearchResult& result);
// `result` has a best layout.
std::string search_text(const SearchResult& result, const cost::Style& style);

}  // namespace lockstep::plan
