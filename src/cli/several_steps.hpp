// Several simulated steps as one result.
#pragma once

#include "sim/several_steps.hpp"

namespace lockstep::cli {

using sim::SeveralSteps;

}  // namespace lockstep::cli
