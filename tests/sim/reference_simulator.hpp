// A slow, plain event-queue simulator of the same step program: an object a rank, one event at a time, no
// lanes, no shared code with src/sim but the definition of the random draws. The truth for the fast one.
#pragma once

#include <vector>

#include "sim/simulate_step.hpp"

namespace lockstep::tests {

struct ReferenceRank {
  double finish = 0;
  double data = 0, tp = 0, cp = 0, message = 0, pp_meeting = 0, dp = 0, optimizer = 0;
  double passes = 0;  // in forward and backward, tensor- and context-parallel collectives included
  double first_forward = -1, last_backward = -1;
};

struct ReferenceResult {
  double seconds = 0;
  int64_t ops = 0;
  std::vector<ReferenceRank> ranks;
};

enum class Communication { all, no_messages, none };  // what is not free

ReferenceResult reference_step(const parallel::Layout& layout, const std::vector<parallel::Program>& programs,
                               const sim::StepOptions& options, Communication communication);

}  // namespace lockstep::tests
