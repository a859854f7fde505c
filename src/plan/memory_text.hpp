// The memory tables of `plan` and `simulate`.
#pragma once

#include <string>

#include "cost/text.hpp"
#include "plan/memory.hpp"

namespace lockstep::plan {

// The fullest GPU's parts, and a line for each stage where there are several.
std::string memory_text(const MemoryReport& memory, const cost::Style& style);

}  // namespace lockstep::plan
