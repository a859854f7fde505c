#include "comm/group_memory.hpp"

#include <algorithm>

namespace lockstep::comm {
namespace {

constexpr size_t page = 4096;
constexpr size_t page_up(size_t bytes) { return (bytes + page - 1) / page * page; }

size_t members_at() { return page_up(sizeof(GroupControl)); }
size_t mailboxes_at(int n) { return members_at() + page_up(static_cast<size_t>(n) * sizeof(Member)); }
size_t pairs(int n) { return static_cast<size_t>(n) * static_cast<size_t>(n); }
size_t data_at(int n) { return mailboxes_at(n) + page_up(pairs(n) * sizeof(Mailbox)); }
size_t slots_at(int n) { return data_at(n) + pairs(n) * mailbox_bytes(n); }
size_t results_at(int n) { return slots_at(n) + 2 * static_cast<size_t>(n) * slot_bytes; }

}  // namespace

size_t mailbox_bytes(int members) {
  const size_t share = (size_t{64} << 20) / static_cast<size_t>(members);
  return std::min(size_t{16} << 20, page_up(share));
}

size_t GroupMemory::bytes(int members) { return results_at(members) + 2 * slot_bytes; }

GroupMemory::GroupMemory(std::shared_ptr<SharedArena> arena, size_t offset, int members)
    : arena_(std::move(arena)), members_(members), base_(arena_->at(offset)) {}

Member& GroupMemory::member(int rank) const { return reinterpret_cast<Member*>(base_ + members_at())[rank]; }

Mailbox& GroupMemory::mailbox(int from, int to) const {
  return reinterpret_cast<Mailbox*>(base_ + mailboxes_at(members_))[from * members_ + to];
}

std::byte* GroupMemory::mailbox_data(int from, int to) const {
  return base_ + data_at(members_) + static_cast<size_t>(from * members_ + to) * mailbox_bytes(members_);
}

std::byte* GroupMemory::slot(uint64_t round, int rank) const {
  const size_t index = (round & 1) * static_cast<size_t>(members_) + static_cast<size_t>(rank);
  return base_ + slots_at(members_) + index * slot_bytes;
}

std::byte* GroupMemory::results(uint64_t round) const {
  return base_ + results_at(members_) + (round & 1) * slot_bytes;
}

void ring_group(const SharedArena& arena, size_t offset) {
  std::byte* base = arena.at(offset);
  auto& control = *reinterpret_cast<GroupControl*>(base);
  control.bell.ring();
  auto* members = reinterpret_cast<Member*>(base + members_at());
  for (uint32_t r = 0; r < control.members; ++r) members[r].bell.ring();
}

}  // namespace lockstep::comm
