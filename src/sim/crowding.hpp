// How much longer a collective over dp_cp takes because of the transfers that the program puts beside it.
#pragma once

#include <memory>
#include <utility>
#include <vector>

#include "sim/per_lane.hpp"
#include "sim/transfers.hpp"

namespace lockstep::sim {

struct PricedAction;

// Paces are how many times as long as alone the collective takes. Both count blocking transfers (of axes tp,
// tp_kv and cp) for as long as they last: beside those the collective does a share of its work.
struct Crowding {
  // Messages that may slow it down and follow one another.
  struct Messages {
    bool latest = false;  // the last one sent before the collective is among them
    PerLane pace = 1;     // while they go on
    PerLane seconds = 0;  // that those last which the program has after the collective
  };
  PerLane pace = 1;  // without messages
  std::vector<Messages> messages;
  bool is_same_for_all = true;  // of all of the above
};

// For every op of an action whose collective goes on beside the computation, or is waited for where it
// stands: counted are the rank's transfers that slow it down and that the program has after it, until it is
// waited for or the next one is queued, as long as the kernels between would not outlast it. Of a stream,
// whose transfers follow one another, those that hold it up most come first: as others get faster, no more of
// these fit beside it. Nominal times only, so that a
// collective's length is known when it starts, and no draw or delay changes it.
void add_crowding(std::vector<PricedAction>& actions, bool one_reduction_at_a_time,
                  StageTransfers& transfers);

using CrowdedPhase = std::pair<double, double>;  // pace, seconds that it lasts

// The end of a lane's part of a collective that starts at `start` and alone takes `seconds`. Messages sent
// before it are on their way until `until`. `phases` is for its use.
double crowded_end(const Crowding& crowding, size_t lane, double start, double seconds, double until,
                   std::vector<CrowdedPhase>& phases);

}  // namespace lockstep::sim
