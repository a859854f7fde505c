// What lies in the shared memory of the local transport. Zero bytes are the valid start of everything,
// records carry a commit word, and nothing is a lock that a dead process could hold.
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>

#include "comm/futex.hpp"

namespace lockstep::comm {

inline constexpr int max_world_size = 256;
inline constexpr int max_groups = 1024;

// A text that one writer fills once. States: 0 empty, 1 being written, 2 whole.
struct OnceText {
  std::atomic<uint32_t> state;
  std::array<char, 508> text;
};

// A group that some member has claimed.
struct GroupEntry {
  static constexpr uint64_t no_room = 1;  // an offset that no group has
  std::atomic<uint64_t> key;              // 0: free; else which group, and the rank that claimed it
  std::atomic<uint64_t> offset;           // of its GroupControl; 0: not laid out yet
};

struct ArenaHeader {
  std::array<char, 16> magic;
  uint64_t bytes;
  uint32_t world_size;
  std::atomic<uint32_t> first_dead;  // global rank + 1; 0: all alive
  std::atomic<uint64_t> next_free;   // offset of space not given to a group yet
  alignas(64) std::array<GroupEntry, max_groups> groups;
  std::array<OnceText, max_world_size> death;  // why a rank died
};

// What one member of a group writes. The first line is read when collectives complete.
struct Member {
  alignas(64) std::atomic<uint64_t> arrived;  // rounds this member has come to; and completed, if it was last
  std::atomic<uint64_t> what;                 // the call it brought: see Rounds::signature
  std::atomic<uint64_t> count;
  alignas(64) Bell bell;  // rung when a message came for it, or room for one it sends
};

struct GroupControl {
  alignas(64) std::atomic<uint64_t> arrivals;   // of all members, in all rounds
  alignas(64) std::atomic<uint64_t> completed;  // rounds that everyone came to
  Bell bell;                                    // rung when a round completes
  alignas(64) OnceText broken;                  // why the group cannot go on
  uint32_t members;
  // Then Member[members], Mailbox[members * members], mailbox data, slots and results.
};

// A pipe of bytes from one member to another. Positions count bytes ever written and read.
struct Mailbox {
  alignas(64) std::atomic<uint64_t> written;
  alignas(64) std::atomic<uint64_t> read;
  std::atomic<uint32_t> sender_waits;
};

}  // namespace lockstep::comm
