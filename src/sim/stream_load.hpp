// What goes on beside the computation of a stage's ranks, and what sharing costs.
//
// A rank's collectives over dp_cp follow one another on its data-parallel stream, its messages on its send
// stream. From when the rank has queued one until it has ended,
//
// - kernels take 1 + communication_slowdown times as long;
// - a further transfer of the rank takes as many times as long as the network says for the two at once
//   (Sharing: max-min fair over all ranks that do the same). Beside several, the one that holds it up longest
//   counts.
// - The collective itself takes longer by what the program puts beside it (PricedAction::crowded).
//
// So a transfer is slowed by what was queued before it, and its end is known when it starts; and whatever
// comes later at one place comes later or at the same time everywhere: no delay, slow rank or slow link can
// make a step shorter (fair sharing worked out moment by moment lacks that: a later start may miss the
// crowd).
#pragma once

#include <memory>
#include <vector>

#include "sim/transfers.hpp"

namespace lockstep::sim {

// A collective on the data-parallel stream, by lane: when its group starts, and ends.
struct QueuedCollective {
  std::shared_ptr<const TransferTimes> transfer;
  std::vector<double> start, end;
};

// The end of what starts at `start`, alone takes `seconds`, and takes `pace` times as long before `until`.
double end_beside(double start, double seconds, double pace, double until);

class StreamLoad {
 public:
  // `lanes`: of the stage. `slowdown`: see above. `transfers` outlives this; null: nothing is shared.
  StreamLoad(StageTransfers* transfers, size_t lanes, double slowdown);

  void queue(std::shared_ptr<const QueuedCollective> collective);
  // The latest that was queued; null: none.
  const std::shared_ptr<const QueuedCollective>& last() const { return last_; }
  // How a collective to be queued shares with the messages that are on their way (null: not at all), and when
  // a lane's part of it ends beside them.
  const Sharing* with_messages(const TransferTimes& collective) const;
  double collective_end(size_t lane, double start, double seconds, const Sharing* with_messages) const;

  // Sends a message of every lane, which alone takes `seconds`, when the lane is ready and its earlier
  // messages are gone; `ready` becomes when it starts. What was `lost` (seconds; empty: nothing) is sent
  // again after it. `arrival` gets when all has arrived.
  void send(std::shared_ptr<const TransferTimes> transfer, std::vector<double>& ready,
            const std::vector<double>& seconds, const std::vector<double>& lost,
            std::vector<double>& arrival);

  // Forgets the collectives that have ended on every lane by then.
  void forget(double lowest_clock);

  // How a transfer shares with each collective that has not ended, and with the latest message.
  struct Beside {
    std::vector<const Sharing*> collectives;  // null: neither slows the other
    const Sharing* message = nullptr;         // null: no message, or neither slows the other
    bool any = false;                         // whether anything is slowed
  };
  Beside beside(const TransferTimes& transfer) const;
  // What a transfer may have to share with: the collectives, in order, and the latest message (null: none).
  std::vector<const TransferTimes*> present() const;
  bool slows_kernels() const { return slowdown_ > 0; }
  // When the last of what goes on beside the lanes [first, last) ends; 0: nothing does.
  double busy_until(size_t first, size_t last) const;

  // The end of a kernel, or of a lane's part of a transfer, that starts at `start` and alone takes `seconds`.
  double kernel_end(size_t lane, double start, double seconds) const;
  double transfer_end(size_t lane, double start, double seconds, const Beside& beside) const;

 private:
  const Sharing* sharing(const TransferTimes& first, const TransferTimes& second) const;

  StageTransfers* transfers_;
  double slowdown_;
  std::vector<std::shared_ptr<const QueuedCollective>> live_;  // in the order of their queue
  std::shared_ptr<const QueuedCollective> last_;
  std::vector<double> sent_;  // when the lane's messages are gone
  std::shared_ptr<const TransferTimes> message_;
};

}  // namespace lockstep::sim
