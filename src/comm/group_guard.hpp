// Waiting in a group, with the three ways out of a wait that does not end well: a dead rank, a broken group,
// time.
#pragma once

#include <sched.h>

#include <chrono>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "comm/group_memory.hpp"

namespace lockstep::comm {

// What is being waited for, as errors name it.
struct Operation {
  std::string_view kind;  // "all_reduce", "recv"
  std::string_view name;  // the caller's; may be empty
  uint64_t sequence = 0;
  std::chrono::milliseconds timeout{0};
};

class GroupGuard {
 public:
  GroupGuard(GroupMemory memory, std::string name, std::vector<int> global_ranks);

  // RunError if a rank of the world is dead or the group is broken.
  void check(const Operation& operation) const;
  // Makes the group unusable for all members, wakes them, and throws RunError: the operation, then `why`.
  [[noreturn]] void fail(const Operation& operation, const std::string& why) const;
  // "global rank 5", for messages.
  std::string rank_text(int group_rank) const;

  // Returns once ready() is true. Whoever makes it true rings `bell` after. missing() is asked on a time-out
  // and says whom this rank waited for.
  template <class Ready, class Missing>
  void wait(Bell& bell, const Operation& operation, const Ready& ready, const Missing& missing) const {
    // With more ranks than cores, giving the core away is mostly all it takes; spinning only holds the others
    // up.
    for (int yields = 0; yields < 2; ++yields) {
      if (ready()) return;
      sched_yield();
    }
    if (!ready()) wait_asleep(bell, operation, std::cref(ready), std::cref(missing));
  }

 private:
  void wait_asleep(Bell& bell, const Operation& operation, const std::function<bool()>& ready,
                   const std::function<std::string()>& missing) const;
  std::string describe(const Operation& operation) const;

  GroupMemory memory_;
  std::string name_;
  std::vector<int> global_ranks_;
};

}  // namespace lockstep::comm
