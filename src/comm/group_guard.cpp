#include "comm/group_guard.hpp"

#include <algorithm>

#include "base/error.hpp"
#include "comm/once_text.hpp"

namespace lockstep::comm {

GroupGuard::GroupGuard(GroupMemory memory, std::string name, std::vector<int> global_ranks)
    : memory_(std::move(memory)), name_(std::move(name)), global_ranks_(std::move(global_ranks)) {}

void GroupGuard::check(const Operation& operation) const {
  const SharedArena& arena = memory_.arena();
  if (arena.any_dead()) throw RunError(arena.death_text() + "; this ended " + describe(operation));
  const OnceText& broken = memory_.control().broken;
  if (is_whole(broken))
    throw RunError(describe(operation) + " cannot run, the group is broken: " + read_once(broken));
}

void GroupGuard::fail(const Operation& operation, const std::string& why) const {
  const std::string text = describe(operation) + " " + why;
  GroupControl& control = memory_.control();
  write_once(control.broken, text);
  control.bell.ring();
  for (int r = 0; r < memory_.members(); ++r) memory_.member(r).bell.ring();
  throw RunError(text);
}

std::string GroupGuard::rank_text(int group_rank) const {
  return "global rank " + std::to_string(global_ranks_[static_cast<size_t>(group_rank)]);
}

void GroupGuard::wait_asleep(Bell& bell, const Operation& operation, const std::function<bool()>& ready,
                             const std::function<std::string()>& missing) const {
  using Clock = std::chrono::steady_clock;
  const auto deadline = Clock::now() + operation.timeout;
  for (;;) {
    const uint32_t seen = bell.read();
    if (ready()) return;
    check(operation);
    const auto left = deadline - Clock::now();
    if (left <= Clock::duration::zero()) {
      const std::string whom = missing();
      if (ready()) return;  // it came meanwhile, and nobody may be missing any more
      fail(operation,
           "timed out after " + std::to_string(operation.timeout.count()) + " ms; did not come: " + whom);
    }
    bell.sleep(seen, std::min<std::chrono::nanoseconds>(left, std::chrono::seconds(1)));
  }
}

std::string GroupGuard::describe(const Operation& operation) const {
  std::string text(operation.kind);
  if (!operation.name.empty()) text += " '" + std::string(operation.name) + "'";
  // A long list would crowd the reason out of the text that the others read (OnceText).
  constexpr size_t most = 16;
  const size_t n = global_ranks_.size();
  text += " #" + std::to_string(operation.sequence) + " of group '" + name_ + "' [";
  for (size_t r = 0; r < std::min(n, most); ++r)
    text += (r == 0 ? "" : " ") + std::to_string(global_ranks_[r]);
  if (n > most) text += " ... " + std::to_string(global_ranks_.back()) + "; " + std::to_string(n) + " ranks";
  return text + "]";
}

}  // namespace lockstep::comm
