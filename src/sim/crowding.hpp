// How much longer a collective over dp_cp takes because of the transfers that the program puts beside it.
#pragma once

#include <memory>
#include <utility>
#include <vector>

#include "sim/per_lane.hpp"
#include "sim/transfers.hpp"

namespace lockstep::sim {

struct PricedAction;

// Paces are how many times as long as alone the collective takes. All but Messages::pace counts blocking
// transfers (of axes tp and cp) for as long as they last, and beside those the collective for a share of its
// work.
struct Crowding {
  // Messages that slow it down and follow one another.
  struct Messages {
    const TransferTimes* transfer = nullptr;
    PerLane pace = 1;     // while they go on, blocking transfers beside both
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
// these fit beside it, and a faster network never makes a step longer. Nominal times only, so that a
// collective's length is known when it starts, and no draw or delay changes it.
void add_crowding(std::vector<PricedAction>& actions, bool one_reduction_at_a_time,
                  StageTransfers& transfers);

using CrowdedPhase = std::pair<double, double>;  // pace, seconds that it lasts

// The end of a lane's part of a collective that starts at `start` and alone takes `seconds`. Before `until`
// messages are on their way, the last of them `sent` (null: none). `phases` is for its use.
double crowded_end(const Crowding& crowding, size_t lane, double start, double seconds,
                   const TransferTimes* sent, double until, std::vector<CrowdedPhase>& phases);

}  // namespace lockstep::sim
