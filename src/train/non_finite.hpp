// Finding where a NaN or an infinity came from.
#pragma once

#include <string>

#include "nn/op_log.hpp"
#include "parallel/program.hpp"
#include "train/groups.hpp"

namespace lockstep::train {

// One worker's first op with a result that is not finite, found by running a step again under the op log's
// check.
struct NonFiniteOrigin {
  nn::NonFiniteOp op;
  parallel::ActionKind action = parallel::ActionKind::forward;  // that ran it
};

// The first of all workers' origins in the order of the step: computed before communicated (which only brings
// what another rank computed), then by micro-batch, forward before backward, place in the model, rank. All
// workers call it together and get the same text, "layer 3, attention, of micro-batch 1 on rank 6 (forward)";
// empty when no worker found one. `origin` may be null.
std::string first_non_finite(const parallel::Layout& layout, const Groups& groups,
                             const NonFiniteOrigin* origin);

}  // namespace lockstep::train
