#include "comm/local_world.hpp"

#include <algorithm>
#include <thread>

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

// The last bits of an entry's key say who claimed it.
constexpr uint64_t rank_bits = 0xFF;
static_assert(max_world_size <= rank_bits + 1);

// FNV-1a without the rank's bits; never 0, which means a free entry.
uint64_t key_of(const std::string& text) {
  uint64_t hash = 0xCBF29CE484222325u;
  for (const char c : text) hash = (hash ^ static_cast<unsigned char>(c)) * 0x100000001B3u;
  return (hash | uint64_t{1} << 63) & ~rank_bits;
}

void check_ranks(const std::string& where, const std::vector<int>& ranks, int me, int world) {
  if (!std::is_sorted(ranks.begin(), ranks.end(), std::less_equal<>()) || ranks.empty())
    throw UsageError(where + "ranks must ascend, each once");
  if (ranks.front() < 0 || ranks.back() >= world)
    throw UsageError(where + "ranks must be 0 to " + std::to_string(world - 1));
  if (!std::binary_search(ranks.begin(), ranks.end(), me))
    throw UsageError(where + "rank " + std::to_string(me) + " is not a member");
}

// Offset of so many bytes that nothing else will use, or GroupEntry::no_room.
size_t allocate(ArenaHeader& header, size_t bytes) {
  uint64_t offset = header.next_free.load();
  do {
    if (bytes > header.bytes - offset) return GroupEntry::no_room;
  } while (!header.next_free.compare_exchange_weak(offset, offset + bytes));
  return offset;
}

size_t lay_out(SharedArena& arena, GroupEntry& entry, int members) {
  const size_t offset = allocate(arena.header(), GroupMemory::bytes(members));
  if (offset != GroupEntry::no_room)
    reinterpret_cast<GroupControl*>(arena.at(offset))->members = static_cast<uint32_t>(members);
  entry.offset.store(offset, std::memory_order_release);
  return offset;
}

// The claimant lays it out within microseconds, or is dead or stopped.
size_t await_layout(const SharedArena& arena, const GroupEntry& entry, const std::string& where,
                    std::chrono::milliseconds timeout) {
  const auto deadline = std::chrono::steady_clock::now() + timeout;
  for (;;) {
    if (const uint64_t offset = entry.offset.load(std::memory_order_acquire); offset != 0) return offset;
    if (arena.any_dead()) throw RunError(where + arena.death_text());
    if (std::chrono::steady_clock::now() > deadline)
      throw RunError(where + "global rank " + std::to_string(entry.key.load() & rank_bits) +
                     " began to make it and did not go on within " + std::to_string(timeout.count()) +
                     " ms; is that process stopped?");
    std::this_thread::sleep_for(std::chrono::microseconds(20));
  }
}

}  // namespace

LocalWorld::LocalWorld(std::shared_ptr<SharedArena> arena, int rank, std::chrono::milliseconds join_timeout)
    : arena_(std::move(arena)), rank_(rank), join_timeout_(join_timeout) {
  if (rank < 0 || rank >= arena_->world_size())
    throw UsageError("rank " + std::to_string(rank) + " of a world of " +
                     std::to_string(arena_->world_size()));
}

LocalWorld::~LocalWorld() = default;

int LocalWorld::size() const { return arena_->world_size(); }

// Finds the group's region, or lays it out if this rank is the first to come.
size_t LocalWorld::find_or_claim(uint64_t key, int members, const std::string& where) {
  ArenaHeader& header = arena_->header();
  for (size_t probe = 0; probe < max_groups; ++probe) {
    GroupEntry& entry = header.groups[(key / (rank_bits + 1) + probe) % max_groups];
    uint64_t seen = 0;
    const bool mine = entry.key.compare_exchange_strong(seen, key | static_cast<uint64_t>(rank_));
    if (!mine && (seen & ~rank_bits) != key) continue;
    const size_t offset =
        mine ? lay_out(*arena_, entry, members) : await_layout(*arena_, entry, where, join_timeout_);
    if (offset != GroupEntry::no_room) return offset;
    throw RunError(where + "the shared memory has no room for another group of " + std::to_string(members) +
                   " ranks. It holds " + std::to_string(groups_of_everyone) +
                   " groups of the whole world, and a group's room is never given back: make each group "
                   "once and keep it.");
  }
  throw RunError(where + "a world holds at most " + std::to_string(max_groups) +
                 " groups, and they are never given back: make each group once and keep it.");
}

std::unique_ptr<Communicator> LocalWorld::group(std::string name, std::vector<int> global_ranks) {
  const std::string where = "group '" + name + "' [" + list_of(global_ranks) + "]: ";
  check_ranks(where, global_ranks, rank_, size());
  const auto repeats = std::count(made_.begin(), made_.end(), where);
  made_.push_back(where);
  const auto members = static_cast<int>(global_ranks.size());
  const size_t offset = find_or_claim(key_of(where + std::to_string(repeats)), members, where);
  const auto me = std::lower_bound(global_ranks.begin(), global_ranks.end(), rank_) - global_ranks.begin();
  return std::make_unique<LocalCommunicator>(GroupMemory(arena_, offset, members), std::move(name),
                                             std::move(global_ranks), static_cast<int>(me));
}

void LocalWorld::abort(std::string_view reason) { arena_->mark_dead(rank_, reason); }

}  // namespace lockstep::comm
