#include "comm/futex.hpp"

#include <linux/futex.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <climits>
#include <ctime>

namespace lockstep::comm {

static_assert(std::atomic<uint32_t>::is_always_lock_free && std::atomic<uint64_t>::is_always_lock_free);
static_assert(sizeof(std::atomic<uint32_t>) == sizeof(uint32_t));

void Bell::ring() {
  // Both are sequentially consistent, as are the waiter's: either the waiter sees the new count or we see the
  // waiter.
  count.fetch_add(1);
  if (sleepers.load() == 0) return;
  syscall(SYS_futex, reinterpret_cast<uint32_t*>(&count), FUTEX_WAKE, INT_MAX, nullptr, nullptr, 0);
}

void Bell::sleep(uint32_t seen, std::chrono::nanoseconds limit) {
  timespec time{};
  time.tv_sec = limit.count() / 1'000'000'000;
  time.tv_nsec = limit.count() % 1'000'000'000;
  sleepers.fetch_add(1);
  if (count.load() == seen)
    syscall(SYS_futex, reinterpret_cast<uint32_t*>(&count), FUTEX_WAIT, seen, &time, nullptr, 0);
  sleepers.fetch_sub(1);
}

}  // namespace lockstep::comm
