// Where a group's parts lie in the arena.
#pragma once

#include <memory>

#include "comm/local_world.hpp"
#include "comm/shared_layout.hpp"

namespace lockstep::comm {

inline constexpr size_t slot_bytes = size_t{1} << 20;  // staging of one member, per parity of the round

// Bytes a mailbox buffers: 16 MiB in groups of up to 4, less in larger ones.
size_t mailbox_bytes(int members);

class GroupMemory {
 public:
  // Bytes that a group of so many members needs.
  static size_t bytes(int members);
  // `offset` of a zeroed region of that size.
  GroupMemory(std::shared_ptr<SharedArena> arena, size_t offset, int members);

  SharedArena& arena() const { return *arena_; }
  int members() const { return members_; }
  GroupControl& control() const { return *reinterpret_cast<GroupControl*>(base_); }
  Member& member(int rank) const;
  Mailbox& mailbox(int from, int to) const;
  std::byte* mailbox_data(int from, int to) const;
  // Staging of member `rank` in rounds of one parity; `results` likewise, one for the group.
  std::byte* slot(uint64_t round, int rank) const;
  std::byte* results(uint64_t round) const;

 private:
  std::shared_ptr<SharedArena> arena_;
  int members_;
  std::byte* base_;
};

// Wakes everyone who waits in the group laid out at `offset`, to look again.
void ring_group(const SharedArena& arena, size_t offset);

}  // namespace lockstep::comm
