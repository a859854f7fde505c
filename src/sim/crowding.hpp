// How much longer a collective beside the computation takes because of the transfers that the program puts
// beside it.
#pragma once

#include <vector>

#include "sim/priced_program.hpp"

namespace lockstep::sim {

// For every action with a collective that is queued: counted are the rank's blocking transfers and messages
// that slow it down and that the program has after it, until it is waited for or the next one is queued, as
// long as the kernels between would not outlast it. Beside each of them the
// collective does a share of its work; beside those of one stream, which follow one another, together at most
// all of it, those that hold it up most first. For that share the collective moves at the pace that the
// network allows the two at once. What blocking transfers and messages cost it adds up: they go on side by
// side. Nominal times only, so that a collective's length is known when it starts, and no draw or delay
// changes it.
void add_crowding(std::vector<PricedAction>& actions, bool one_reduction_at_a_time,
                  StageTransfers& transfers);

}  // namespace lockstep::sim
