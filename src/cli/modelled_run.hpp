// What the commands that handle a run's program share.
#pragma once

#include <vector>

#include "cost/text.hpp"
#include "parallel/layout.hpp"
#include "parallel/program.hpp"

namespace lockstep::cli {

// The step program of every pipeline position, proved to end and to free what it holds.
std::vector<parallel::Program> checked_programs(const parallel::Layout& layout);

cost::Style text_style();  // for standard output: colour on a terminal only

}  // namespace lockstep::cli
