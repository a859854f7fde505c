// The collectives of the local transport. A group lives in rounds: in each, every member stages something in
// its slot and arrives; when all have, the round completes and members read what the others staged. Slots and
// results are kept for two rounds, by parity: whoever writes a slot in round k+2 knows that all have read it,
// since they arrived at k+1. So one wake-up per round suffices.
#pragma once

#include "comm/communicator.hpp"
#include "comm/group_guard.hpp"

namespace lockstep::comm {

class Rounds {
 public:
  Rounds(GroupMemory memory, const GroupGuard& guard, int rank);
  void run(const CollectiveCall& call);

 private:
  bool arrive(const CollectiveCall& call);  // true for the last to come, who then calls complete()
  void complete();
  void await();
  void meet(const CollectiveCall& call);
  bool others_are_here() const;
  void compare_calls();
  std::string missing() const;
  std::byte* slot(int rank) const { return memory_.slot(round_, rank); }

  void run_alone(const CollectiveCall& call);
  void all_reduce_at_once(const CollectiveCall& call);
  void all_reduce_in_pieces(const CollectiveCall& call);
  void reduce_scatter(const CollectiveCall& call);
  void all_gather(const CollectiveCall& call);
  void broadcast(const CollectiveCall& call);

  GroupMemory memory_;
  const GroupGuard& guard_;
  int rank_;
  int size_;
  uint64_t round_ = 0;        // the next to complete
  uint64_t sequence_ = 0;     // of the call
  bool first_round_ = false;  // of the call: its last to come compares what the members brought
  Operation operation_;
};

}  // namespace lockstep::comm
