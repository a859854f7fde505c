#include "comm/local_world.hpp"

#include <sched.h>

#include <algorithm>

#include "base/error.hpp"
#include "comm/group_memory.hpp"
#include "comm/local_communicator.hpp"

namespace lockstep::comm {
namespace {

std::string list_of(const std::vector<int>& ranks) {
  std::string text;
  for (const int rank : ranks) text += (text.empty() ? "" : " ") + std::to_string(rank);
  return text;
}

// FNV-1a; never 0, which means a free entry.
uint64_t key_of(const std::string& text) {
  uint64_t hash = 0xCBF29CE484222325u;
  for (const char c : text) hash = (hash ^ static_cast<unsigned char>(c)) * 0x100000001B3u;
  return hash == 0 ? 1 : hash;
}

void check_ranks(const std::string& name, const std::vector<int>& ranks, int me, int world) {
  const std::string where = "group '" + name + "' [" + list_of(ranks) + "]: ";
  if (!std::is_sorted(ranks.begin(), ranks.end(), std::less_equal<>()) || ranks.empty())
    throw UsageError(where + "ranks must ascend, each once");
  if (ranks.front() < 0 || ranks.back() >= world)
    throw UsageError(where + "ranks must be 0 to " + std::to_string(world - 1));
  if (!std::binary_search(ranks.begin(), ranks.end(), me))
    throw UsageError(where + "rank " + std::to_string(me) + " is not a member");
}

size_t allocate(ArenaHeader& header, int members) {
  const size_t bytes = GroupMemory::bytes(members);
  const size_t offset = header.next_free.fetch_add(bytes);
  if (offset + bytes > header.bytes)
    throw RunError("shared memory: no room for another group of " + std::to_string(members) + " ranks");
  return offset;
}

// Finds the group's region, or lays it out if this rank is the first to come.
size_t find_or_claim(SharedArena& arena, uint64_t key, int members) {
  ArenaHeader& header = arena.header();
  for (size_t probe = 0; probe < max_groups; ++probe) {
    GroupEntry& entry = header.groups[(key + probe) % max_groups];
    uint64_t seen = 0;
    if (entry.key.compare_exchange_strong(seen, key)) {
      const size_t offset = allocate(header, members);
      reinterpret_cast<GroupControl*>(arena.at(offset))->members = static_cast<uint32_t>(members);
      entry.offset.store(offset, std::memory_order_release);
      return offset;
    }
    if (seen != key) continue;
    for (;;) {  // the claimant lays it out within microseconds, or is dead
      if (const uint64_t offset = entry.offset.load(std::memory_order_acquire); offset != 0) return offset;
      if (arena.any_dead()) throw RunError("rank " + std::to_string(arena.first_dead()) + " died");
      sched_yield();
    }
  }
  throw RunError("shared memory: more than " + std::to_string(max_groups) + " groups");
}

}  // namespace

LocalWorld::LocalWorld(std::shared_ptr<SharedArena> arena, int rank) : arena_(std::move(arena)), rank_(rank) {
  if (rank < 0 || rank >= arena_->world_size())
    throw UsageError("rank " + std::to_string(rank) + " of a world of " +
                     std::to_string(arena_->world_size()));
}

LocalWorld::~LocalWorld() = default;

int LocalWorld::size() const { return arena_->world_size(); }

std::unique_ptr<Communicator> LocalWorld::group(std::string name, std::vector<int> global_ranks) {
  check_ranks(name, global_ranks, rank_, size());
  const std::string text = name + " " + list_of(global_ranks);
  const auto repeats = std::count(made_.begin(), made_.end(), key_of(text));
  made_.push_back(key_of(text));
  const uint64_t key = key_of(text + "#" + std::to_string(repeats));
  const auto members = static_cast<int>(global_ranks.size());
  const size_t offset = find_or_claim(*arena_, key, members);
  const auto me = std::lower_bound(global_ranks.begin(), global_ranks.end(), rank_) - global_ranks.begin();
  return std::make_unique<LocalCommunicator>(GroupMemory(arena_, offset, members), std::move(name),
                                             std::move(global_ranks), static_cast<int>(me));
}

void LocalWorld::abort(std::string_view reason) { arena_->mark_dead(rank_, reason); }

}  // namespace lockstep::comm
