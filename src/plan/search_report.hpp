// What `lockstep plan --search` says.
#pragma once

#include <string>

#include "base/json_fwd.hpp"
#include "cost/text.hpp"
#include "plan/search_result.hpp"

namespace lockstep::plan {

// With nothing that fits: no layouts, but `reason` and `closest`.
Json search_json(const SearchResult& result);
// `result` has a best layout.
std::string search_text(const SearchResult& result, const cost::Style& style);

}  // namespace lockstep::plan
