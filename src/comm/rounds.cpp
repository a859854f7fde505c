#include "comm/rounds.hpp"

#include <algorithm>
#include <array>

#include "comm/reduce.hpp"

namespace lockstep::comm {
namespace {

constexpr size_t line = 64;

// Packed so that equal calls give equal words: accumulate, kind, type, reduction, root, contributors (count
// is apart).
uint64_t signature(const CollectiveCall& c) {
  return 1 | static_cast<uint64_t>(c.accumulate) << 1 | static_cast<uint64_t>(c.kind) << 8 |
         static_cast<uint64_t>(c.type) << 16 | static_cast<uint64_t>(c.op) << 24 |
         static_cast<uint64_t>(c.root) << 32 | static_cast<uint64_t>(c.contributors) << 48;
}

std::string text_of(uint64_t signature_word, uint64_t count) {
  const auto kind = static_cast<CallKind>(signature_word >> 8 & 0xFF);
  std::string text(name_of(kind));
  if (kind == CallKind::barrier) return text;
  text += " of " + std::to_string(count) + " " +
          std::string(name_of(static_cast<DataType>(signature_word >> 16 & 0xFF)));
  if (kind == CallKind::broadcast)
    text += " from group rank " + std::to_string(signature_word >> 32 & 0xFFFF);
  if (kind != CallKind::all_reduce && kind != CallKind::reduce_scatter) return text;
  text += (signature_word >> 24 & 0xFF) == 0 ? " (sum" : " (max";
  if ((signature_word & 2) != 0) text += ", accumulated";
  if (kind == CallKind::reduce_scatter)
    text += ", of " + std::to_string(signature_word >> 48) + " contributors";
  text += ")";
  return text;
}

// Largest all-reduce that its last member reduces alone: one round. Beyond, sharing the work pays for more
// rounds.
size_t at_once_limit(int members) {
  if (members <= 2) return size_t{1} << 20;
  return members <= 4 ? size_t{512} << 10 : size_t{256} << 10;
}

// Bytes a member stages a round in long calls: all slots of two rounds stay in the cache (measured best: 512
// KiB for 2 members, 256 KiB for 8), yet not so few that the rounds cost more than the copies.
size_t piece_bytes(int members) {
  return std::clamp((size_t{2} << 20) / static_cast<size_t>(members) / line * line, size_t{64} << 10,
                    size_t{512} << 10);
}

}  // namespace

Rounds::Rounds(GroupMemory memory, const GroupGuard& guard, int rank)
    : memory_(std::move(memory)), guard_(guard), rank_(rank), size_(memory_.members()) {}

void Rounds::run(const CollectiveCall& call) {
  operation_ = {name_of(call.kind), call.name, sequence_++, call.timeout};
  first_round_ = true;
  guard_.check(operation_);
  if (size_ == 1) return run_alone(call);
  switch (call.kind) {
    case CallKind::all_reduce:
      return call.count * size_of(call.type) <= at_once_limit(size_) ? all_reduce_at_once(call)
                                                                     : all_reduce_in_pieces(call);
    case CallKind::all_gather:
      return all_gather(call);
    case CallKind::reduce_scatter:
      return reduce_scatter(call);
    case CallKind::broadcast:
      return broadcast(call);
    case CallKind::barrier:
      return meet(call);
  }
}

void Rounds::run_alone(const CollectiveCall& call) {
  if (call.kind == CallKind::barrier) return;
  if (call.accumulate) {
    auto* output = static_cast<std::byte*>(call.output);
    const std::byte* const sources[] = {output, static_cast<const std::byte*>(call.input)};
    return reduce(sources, output, nullptr, call.count, call.type, call.op);
  }
  copy_bytes(call.output, call.input, call.count * size_of(call.type));
}

bool Rounds::others_are_here() const {
  const auto n = static_cast<uint64_t>(size_);
  return memory_.control().arrivals.load(std::memory_order_acquire) == (round_ + 1) * n - 1;
}

bool Rounds::arrive(const CollectiveCall& call) {
  Member& me = memory_.member(rank_);
  if (first_round_) {
    me.what.store(signature(call), std::memory_order_relaxed);
    me.count.store(call.count, std::memory_order_relaxed);
  }
  const auto n = static_cast<uint64_t>(size_);
  const bool last =
      memory_.control().arrivals.fetch_add(1, std::memory_order_acq_rel) + 1 == (round_ + 1) * n;
  // The last one's comes with completion: until then the others wait for it, and their time-outs name it.
  if (!last) me.arrived.store(round_ + 1, std::memory_order_release);
  if (last && first_round_) compare_calls();
  first_round_ = false;
  return last;
}

void Rounds::complete() {
  GroupControl& control = memory_.control();
  control.completed.store(++round_, std::memory_order_release);
  memory_.member(rank_).arrived.store(round_, std::memory_order_release);
  control.bell.ring();
}

void Rounds::await() {
  GroupControl& control = memory_.control();
  guard_.wait(
      control.bell, operation_, [&] { return control.completed.load(std::memory_order_acquire) > round_; },
      [&] { return missing(); });
  ++round_;
}

void Rounds::meet(const CollectiveCall& call) {
  if (arrive(call))
    complete();
  else
    await();
}

// The last to come sees what all brought. On a difference it breaks the group, which tells everyone.
void Rounds::compare_calls() {
  const auto brought = [&](int r) {
    const Member& member = memory_.member(r);
    return std::pair(member.what.load(std::memory_order_relaxed),
                     member.count.load(std::memory_order_relaxed));
  };
  const auto mine = brought(rank_);
  bool same = true;
  for (int r = 0; r < size_; ++r) same = same && brought(r) == mine;
  if (same) return;
  std::string text = "does not match: ";
  for (int r = 0; r < size_; ++r) {
    const auto [what, count] = brought(r);
    text += (r == 0 ? "" : ", ") + guard_.rank_text(r) + " brought " + text_of(what, count);
  }
  guard_.fail(operation_, text);
}

std::string Rounds::missing() const {
  std::string text;
  for (int r = 0; r < size_; ++r)
    if (memory_.member(r).arrived.load(std::memory_order_acquire) <= round_)
      text += (text.empty() ? "" : ", ") + guard_.rank_text(r);
  return text;
}

// The last to come reads its own part where it is and everyone else's from the slots, and reduces for all.
void Rounds::all_reduce_at_once(const CollectiveCall& call) {
  auto* data = static_cast<std::byte*>(call.output);
  const size_t bytes = call.count * size_of(call.type);
  if (!others_are_here()) copy_bytes(slot(rank_), data, bytes);
  const uint64_t round = round_;
  if (arrive(call)) {
    std::array<const std::byte*, max_world_size> sources;
    for (int r = 0; r < size_; ++r) sources[static_cast<size_t>(r)] = r == rank_ ? data : slot(r);
    reduce({sources.data(), static_cast<size_t>(size_)}, memory_.results(round), data, call.count, call.type,
           call.op);
    complete();
  } else {
    await();
    copy_bytes(data, memory_.results(round), bytes);
  }
}

// Piece by piece: all stage a piece; then each reduces its share of it and, a round later, reads the others'
// shares. Own shares are read and written in place.
void Rounds::all_reduce_in_pieces(const CollectiveCall& call) {
  auto* data = static_cast<std::byte*>(call.output);
  const size_t element = size_of(call.type);
  const auto n = static_cast<size_t>(size_);
  const size_t piece = piece_bytes(size_);
  const size_t bytes = call.count * element;
  const size_t share = (piece / n + line - 1) / line * line;
  const auto begin_of = [&](size_t member, size_t length) { return std::min(member * share, length); };
  const auto me = static_cast<size_t>(rank_);

  std::array<const std::byte*, max_world_size> sources;
  size_t previous = 0, previous_length = 0;  // the piece that is reduced but not yet read
  for (size_t at = 0; at < bytes + piece; at += piece) {
    const size_t length = at < bytes ? std::min(piece, bytes - at) : 0;
    const size_t begin = begin_of(me, length), end = begin_of(me + 1, length);
    copy_bytes(slot(rank_), data + at, begin);
    copy_bytes(slot(rank_) + end, data + at + end, length - end);
    meet(call);
    const uint64_t round = round_ - 1;
    if (previous_length != 0) {
      const size_t from = begin_of(me, previous_length), to = begin_of(me + 1, previous_length);
      const std::byte* results = memory_.results(round - 1);
      copy_bytes(data + previous, results, from);
      copy_bytes(data + previous + to, results + to, previous_length - to);
    }
    if (length == 0) break;
    for (size_t r = 0; r < n; ++r)
      sources[r] = (r == me ? data + at : memory_.slot(round, static_cast<int>(r))) + begin;
    reduce({sources.data(), n}, memory_.results(round) + begin, data + at + begin, (end - begin) / element,
           call.type, call.op);
    previous = at;
    previous_length = length;
  }
}

void Rounds::reduce_scatter(const CollectiveCall& call) {
  const auto* input = static_cast<const std::byte*>(call.input);
  auto* output = static_cast<std::byte*>(call.output);
  const size_t element = size_of(call.type);
  const size_t bytes = call.count * element;  // of one member's part
  const auto n = static_cast<size_t>(size_);
  const auto me = static_cast<size_t>(rank_), contributors = static_cast<size_t>(call.contributors);
  const size_t piece = std::max(piece_bytes(size_) / n / line * line, line);
  std::array<const std::byte*, max_world_size + 1> sources;
  size_t at = 0;
  do {
    const size_t length = std::min(piece, bytes - at);
    for (size_t r = 0; me < contributors && r < n; ++r)
      if (r != me) copy_bytes(slot(rank_) + r * piece, input + r * bytes + at, length);
    meet(call);
    size_t addends = 0;
    if (call.accumulate) sources[addends++] = output + at;
    for (size_t r = 0; r < contributors; ++r)
      sources[addends++] =
          r == me ? input + me * bytes + at : memory_.slot(round_ - 1, static_cast<int>(r)) + me * piece;
    reduce({sources.data(), addends}, output + at, nullptr, length / element, call.type, call.op);
    at += length;
  } while (at < bytes);
}

void Rounds::all_gather(const CollectiveCall& call) {
  const auto* input = static_cast<const std::byte*>(call.input);
  auto* output = static_cast<std::byte*>(call.output);
  const size_t bytes = call.count * size_of(call.type);
  const size_t piece = piece_bytes(size_);
  size_t at = 0;
  do {
    const size_t length = std::min(piece, bytes - at);
    copy_bytes(slot(rank_), input + at, length);
    meet(call);
    for (int r = 0; r < size_; ++r)
      copy_bytes(output + static_cast<size_t>(r) * bytes + at,
                 r == rank_ ? input + at : memory_.slot(round_ - 1, r), length);
    at += length;
  } while (at < bytes);
}

void Rounds::broadcast(const CollectiveCall& call) {
  auto* data = static_cast<std::byte*>(call.output);
  const size_t bytes = call.count * size_of(call.type);
  const size_t piece = slot_bytes;
  size_t at = 0;
  do {
    const size_t length = std::min(piece, bytes - at);
    if (rank_ == call.root) copy_bytes(slot(rank_), data + at, length);
    meet(call);
    if (rank_ != call.root) copy_bytes(data + at, memory_.slot(round_ - 1, call.root), length);
    at += length;
  } while (at < bytes);
}

}  // namespace lockstep::comm
