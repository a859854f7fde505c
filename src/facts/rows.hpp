// The claims, group by group; each file has those of one or two groups.
#pragma once

#include <vector>

#include "facts/basis.hpp"
#include "facts/fact.hpp"

namespace lockstep::facts {

std::vector<Fact> model_rows(const Basis& basis);
std::vector<Fact> layout_rows(const Basis& basis);
std::vector<Fact> network_rows(const Basis& basis);
std::vector<Fact> pipeline_rows(const Basis& basis);
std::vector<Fact> step_rows(const Basis& basis);
std::vector<Fact> failure_rows(const Basis& basis);
std::vector<Fact> power_rows(const Basis& basis);
std::vector<Fact> published_rows(const Basis& basis);
// Of the article's own pass rate: needs what became of its other claims.
Fact pass_rate_row(const std::vector<Fact>& others);

}  // namespace lockstep::facts
