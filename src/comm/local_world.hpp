// The `local` transport: ranks are processes of one machine (or threads of one process) around one piece of
// anonymous shared memory, handed down as a file descriptor, so that nothing with a name can be left behind.
// Waiting is on futexes after a yield or two; 16 workers on 2 cores run well.
#pragma once

#include <chrono>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "comm/communicator.hpp"

namespace lockstep::comm {

struct ArenaHeader;

inline constexpr int groups_of_everyone = 64;  // that the arena has room for; far more smaller ones

// The launcher creates it before it starts workers and keeps it; workers attach to the inherited descriptor.
// Threads as ranks share one object. The memory is sparse: gigabytes of address space, pages as they are
// used.
class SharedArena {
 public:
  static std::shared_ptr<SharedArena> create(int world_size);
  static std::shared_ptr<SharedArena> attach(
      int fd);  // duplicates fd; RunError when it is no arena of this build
  ~SharedArena();
  SharedArena(const SharedArena&) = delete;
  SharedArena& operator=(const SharedArena&) = delete;

  int fd() const {
    return fd_;
  }  // close-on-exec: a launcher clears that flag in the child (adddup2 of fd onto itself)
  int world_size() const;
  // For the launcher, or a failing rank: ends every wait in every group at once with a RunError that names
  // `rank` and `why`. The first mark wins. Safe to call from any process that maps the arena, not from a
  // signal handler.
  void mark_dead(int rank, std::string_view why);
  bool any_dead() const;
  int first_dead() const;                 // global rank, -1 if none
  std::string first_dead_reason() const;  // empty if none
  std::string death_text() const;         // "global rank 3 died (killed by signal 9)"; some rank is dead

  ArenaHeader& header() const;
  std::byte* at(size_t offset) const { return base_ + offset; }

 private:
  SharedArena(int fd, size_t bytes);

  int fd_;
  size_t bytes_;
  std::byte* base_ = nullptr;
};

class LocalWorld final : public World {
 public:
  // `join_timeout`: how long group() waits for another member that has begun to make the same group.
  LocalWorld(std::shared_ptr<SharedArena> arena, int rank,
             std::chrono::milliseconds join_timeout = std::chrono::minutes(1));
  ~LocalWorld() override;
  int rank() const override { return rank_; }
  int size() const override;
  // A group's memory is never given back: make each once and keep it. RunError when there is no room.
  std::unique_ptr<Communicator> group(std::string name, std::vector<int> global_ranks) override;
  void abort(std::string_view reason) override;

 private:
  size_t find_or_claim(uint64_t key, int members, const std::string& where);

  std::shared_ptr<SharedArena> arena_;
  int rank_;
  std::chrono::milliseconds join_timeout_;
  std::vector<std::string> made_;  // the groups made so far, to tell a repeated call
};

}  // namespace lockstep::comm
