// Sleeping and waking between processes through a word of shared memory.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>

namespace lockstep::comm {

// Something others wait for. A waiter reads `count`, looks whether what it wants is there, and sleeps only
// while `count` is still what it read; whoever changes something that is waited for rings. Zero bytes are a
// valid bell. A process that dies asleep leaves `sleepers` too high, which costs later ringers a needless
// system call, no more.
struct Bell {
  std::atomic<uint32_t> count;
  std::atomic<uint32_t> sleepers;

  uint32_t read() const { return count.load(std::memory_order_acquire); }
  void ring();
  // Sleeps until a ring after `seen` was read, or for `limit`; may also return early.
  void sleep(uint32_t seen, std::chrono::nanoseconds limit);
};

}  // namespace lockstep::comm
