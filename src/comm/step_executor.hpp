// Runs any collective algorithm (collective/steps.hpp) over sends and receives of a communicator.
#pragma once

#include "collective/steps.hpp"
#include "comm/communicator.hpp"

namespace lockstep::comm {

// In place: every member holds a whole buffer of `count` elements, cut by collective::chunk_range. For
// all_gather a member brings chunk `rank`; after reduce_scatter its chunk `rank` is the result and the others
// are left over. The order of a sum is the algorithm's, and bf16 is rounded after each step: bits may differ
// from the communicator's own all_reduce. UsageError if the list is for another number of ranks.
void run_steps(const collective::StepList& list, Communicator& group, void* data, size_t count, DataType type,
               ReduceOp op, int tag, const OpOptions& options = {});

}  // namespace lockstep::comm
