// What goes on beside the computation of a stage's ranks, and what sharing costs.
//
// A rank's collectives over dp_cp follow one another on its data-parallel stream, its messages on its send
// stream. From when the rank has queued one until it has ended,
//
// - kernels take 1 + communication_slowdown times as long;
// - a further transfer of the rank takes as many times as long as the network says for the two, or with one
//   of each stream for the three, at once (fair over all ranks that do the same). Beside several collectives,
//   which follow one another, the one that holds it up longest counts.
// - The collective itself takes longer by what the program puts beside it (crowding.hpp).
//
// So a transfer is slowed by what was queued before it, and its end is known when it starts; and whatever
// comes later at one place comes later or at the same time everywhere: no delay, no slow rank and no slow
// link can make a step shorter (fair sharing worked out moment by moment lacks that: a later start may miss
// the crowd).
#pragma once

#include <memory>
#include <vector>

#include "sim/crowding.hpp"
#include "sim/lanes.hpp"
#include "sim/transfers.hpp"

namespace lockstep::sim {

// A collective on the data-parallel stream. All columns of a tensor-parallel row are one group: by row, when
// it starts and ends.
struct QueuedCollective {
  std::shared_ptr<const TransferTimes> transfer;
  std::vector<double> start, end;
  double last_end = 0;
};

// Something beside a transfer: it takes `pace` times as long before `until`.
struct Slower {
  double pace = 1;
  double until = 0;
};
// The end of what starts at `start` and alone takes `seconds`, beside two; `both`: the pace as long as both
// go on.
double end_beside_two(double start, double seconds, double both, Slower first, Slower last);

class StreamLoad {
 public:
  // `slowdown`: see above. `grid` and `transfers` outlive this; null transfers: nothing is shared.
  StreamLoad(const LaneGrid& grid, StageTransfers* transfers, double slowdown);

  void queue(std::shared_ptr<const QueuedCollective> collective);
  // The latest that was queued; null: none.
  const std::shared_ptr<const QueuedCollective>& last() const { return last_; }
  // When a row's collective ends that alone takes `seconds`, but is crowded (null: is not).
  double collective_end(int row, double start, double seconds, const Crowding* crowding);

  // Sends a message of every lane, which alone takes `seconds`, when the lane is ready and its earlier
  // messages are gone; `ready` becomes when it starts. What was `lost` (seconds; empty: nothing) is sent
  // again after it. `arrival` gets when all has arrived.
  void send(std::shared_ptr<const TransferTimes> transfer, std::vector<double>& ready,
            const std::vector<double>& seconds, const std::vector<double>& lost,
            std::vector<double>& arrival);

  // Forgets the collectives that have ended on every lane by the time that the lanes' clocks show.
  void forget(const std::vector<double>& clocks);

  // The pace of a transfer beside each collective that has not ended, and the latest message.
  struct Beside {
    struct OfCollective {
      const PerLane* without_message;  // null: it does not share with it
      const PerLane* with_message;     // beside the latest message too
    };
    std::vector<OfCollective> collectives;
    const PerLane* message = nullptr;  // null: no message, or it does not share with it
    bool any = false;                  // whether anything is slowed
  };
  Beside beside(const TransferTimes& transfer) const;
  // Adds what a transfer may have to share with: the collectives, in order, and the latest message.
  void add_present(std::vector<const void*>& out) const;
  bool slows_kernels() const { return slowdown_ > 0; }
  // When the last of what goes on beside the tile's lanes ends; 0: nothing does.
  double busy_until(const Tile& tile) const;

  // How many times as long kernels take beside what goes on, until when it does: by row the collectives, by
  // lane the messages.
  double kernel_pace() const { return 1 + slowdown_; }
  void collectives_end(std::vector<double>& by_row) const;
  const double* messages_gone() const { return sent_.data(); }
  // The end of a lane's part of a transfer that starts at `start` and alone takes `seconds`.
  double transfer_end(size_t lane, int row, double start, double seconds, const Beside& beside) const;

 private:
  const Sharing* sharing(const TransferTimes& first, const TransferTimes& second) const;

  const LaneGrid& grid_;
  StageTransfers* transfers_;
  double slowdown_;
  std::vector<std::shared_ptr<const QueuedCollective>> live_;  // in the order of their queue
  std::shared_ptr<const QueuedCollective> last_;
  std::vector<double> sent_;  // when the lane's messages are gone
  std::shared_ptr<const TransferTimes> message_;
  std::vector<CrowdedPhase> phases_;
};

}  // namespace lockstep::sim
