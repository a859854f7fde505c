#include "collective/steps.hpp"

#include <algorithm>
#include <bit>
#include <iterator>

#include "base/error.hpp"

namespace lockstep::collective {
namespace {

constexpr std::string_view collective_names[] = {"all_reduce", "all_gather", "reduce_scatter", "broadcast"};
constexpr std::string_view algorithm_names[] = {"ring", "direct", "halving_doubling"};

StepList empty_list(Collective collective, std::string_view algorithm, int ranks) {
  if (ranks < 1) throw UsageError("a collective needs at least 1 rank, not " + std::to_string(ranks));
  return {collective, std::string(algorithm), ranks, collective == Collective::broadcast ? 1 : ranks, {}};
}

[[noreturn]] void refuse(std::string_view algorithm, Collective collective) {
  std::string text =
      "no " + std::string(algorithm) + " algorithm for " + std::string(name_of(collective)) + "; there is";
  for (const std::string& name : algorithms_for(collective, 2)) text += " " + name;
  throw UsageError(text);
}

bool reduces(Collective c) { return c == Collective::all_reduce || c == Collective::reduce_scatter; }
bool gathers(Collective c) { return c == Collective::all_reduce || c == Collective::all_gather; }

// After it, chunk r of rank r is reduced: chunk c starts at rank c+1 and travels once around.
void add_ring_reduce(StepList& list) {
  const int n = list.ranks, first = rounds(list);
  for (int k = 0; k < n - 1; ++k)
    for (int r = 0; r < n; ++r)
      list.steps.push_back({first + k, r, (r + 1) % n, (r - 1 - k + 2 * n) % n, Action::reduce});
}

// Chunk r starts at rank r.
void add_ring_gather(StepList& list) {
  const int n = list.ranks, first = rounds(list);
  for (int k = 0; k < n - 1; ++k)
    for (int r = 0; r < n; ++r)
      list.steps.push_back({first + k, r, (r + 1) % n, (r - k + n) % n, Action::copy});
}

void add_direct_reduce(StepList& list) {
  const int round = rounds(list);
  for (int r = 0; r < list.ranks; ++r)
    for (int to = 0; to < list.ranks; ++to)
      if (to != r) list.steps.push_back({round, r, to, to, Action::reduce});
}

void add_direct_gather(StepList& list) {
  const int round = rounds(list);
  for (int r = 0; r < list.ranks; ++r)
    for (int to = 0; to < list.ranks; ++to)
      if (to != r) list.steps.push_back({round, r, to, r, Action::copy});
}

// Chunks that rank r is still in charge of once it has halved with all partners at a distance of `distance`
// or more.
int first_chunk(int r, int distance) { return r / distance * distance; }

}  // namespace

std::string_view name_of(Collective collective) { return collective_names[static_cast<size_t>(collective)]; }

Collective collective_of(std::string_view name) {
  const auto found = std::find(std::begin(collective_names), std::end(collective_names), name);
  if (found != std::end(collective_names))
    return static_cast<Collective>(std::distance(std::begin(collective_names), found));
  throw UsageError("unknown collective '" + std::string(name) +
                   "'; known: all_reduce, all_gather, reduce_scatter, broadcast");
}

StepList ring(Collective collective, int ranks) {
  if (collective == Collective::broadcast) refuse("ring", collective);
  StepList list = empty_list(collective, "ring", ranks);
  if (reduces(collective)) add_ring_reduce(list);
  if (gathers(collective)) add_ring_gather(list);
  return list;
}

StepList direct(Collective collective, int ranks) {
  StepList list = empty_list(collective, "direct", ranks);
  if (reduces(collective)) add_direct_reduce(list);
  if (gathers(collective)) add_direct_gather(list);
  if (collective == Collective::broadcast)
    for (int to = 1; to < ranks; ++to) list.steps.push_back({0, 0, to, 0, Action::copy});
  return list;
}

StepList halving_doubling(Collective collective, int ranks) {
  if (collective != Collective::all_reduce) refuse("halving_doubling", collective);
  StepList list = empty_list(collective, "halving_doubling", ranks);
  if (!std::has_single_bit(static_cast<unsigned>(ranks)))
    throw UsageError("halving_doubling takes a power of two of ranks, not " + std::to_string(ranks) +
                     "; nearest: " + std::to_string(std::bit_floor(static_cast<unsigned>(ranks))) + " and " +
                     std::to_string(std::bit_ceil(static_cast<unsigned>(ranks))) + "; ring takes any number");
  int round = 0;
  for (int distance = ranks / 2; distance >= 1; distance /= 2, ++round)
    for (int r = 0; r < ranks; ++r) {  // gives its partner the half that the partner keeps
      const int partner = r ^ distance, first = first_chunk(partner, distance);
      for (int c = first; c < first + distance; ++c)
        list.steps.push_back({round, r, partner, c, Action::reduce});
    }
  for (int distance = 1; distance < ranks; distance *= 2, ++round)
    for (int r = 0; r < ranks; ++r) {  // gives its partner all it has
      const int first = first_chunk(r, distance);
      for (int c = first; c < first + distance; ++c)
        list.steps.push_back({round, r, r ^ distance, c, Action::copy});
    }
  return list;
}

StepList build(Collective collective, std::string_view algorithm, int ranks) {
  if (algorithm == "ring") return ring(collective, ranks);
  if (algorithm == "direct") return direct(collective, ranks);
  if (algorithm == "halving_doubling") return halving_doubling(collective, ranks);
  throw UsageError("unknown collective algorithm '" + std::string(algorithm) +
                   "'; known: ring, direct, halving_doubling");
}

std::vector<std::string> algorithms_for(Collective collective, int ranks) {
  std::vector<std::string> names;
  for (const std::string_view name : algorithm_names) {
    if (name == "ring" && collective == Collective::broadcast) continue;
    if (name == "halving_doubling" &&
        (collective != Collective::all_reduce || !std::has_single_bit(static_cast<unsigned>(ranks))))
      continue;
    names.emplace_back(name);
  }
  return names;
}

int rounds(const StepList& list) { return list.steps.empty() ? 0 : list.steps.back().round + 1; }

double sent_fraction(const StepList& list, int rank) {
  const auto n =
      std::count_if(list.steps.begin(), list.steps.end(), [&](const Step& s) { return s.from == rank; });
  return static_cast<double>(n) / list.chunks;
}

double received_fraction(const StepList& list, int rank) {
  const auto n =
      std::count_if(list.steps.begin(), list.steps.end(), [&](const Step& s) { return s.to == rank; });
  return static_cast<double>(n) / list.chunks;
}

Range chunk_range(size_t count, int chunks, int chunk) {
  const auto n = static_cast<size_t>(chunks), c = static_cast<size_t>(chunk);
  const size_t base = count / n, longer = count % n;
  const size_t begin = c * base + std::min(c, longer);
  return {begin, begin + base + (c < longer ? 1 : 0)};
}

}  // namespace lockstep::collective
