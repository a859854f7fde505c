#include "collective/steps.hpp"

#include <algorithm>
#include <bit>
#include <iterator>

#include "base/error.hpp"
#include "collective/shapes.hpp"

namespace lockstep::collective {
namespace {

constexpr std::string_view collective_names[] = {"all_reduce", "all_gather", "reduce_scatter", "broadcast"};
constexpr std::string_view algorithm_names[] = {"ring", "direct", "halving_doubling", "tree", "hierarchical"};

StepList empty_list(Collective collective, std::string_view algorithm, int ranks) {
  if (ranks < 1) throw UsageError("a collective needs at least 1 rank, not " + std::to_string(ranks));
  return {collective, std::string(algorithm), ranks, collective == Collective::broadcast ? 1 : ranks, {}};
}

// Where a ring goes through, and which chunks its members own. A phase takes the rounds from `first` on.
struct Ring {
  std::vector<int> order;                // the rank at each place of the ring
  std::vector<std::vector<int>> chunks;  // that the rank at each place owns
};

// After it, the chunks of each place are reduced there: those of place p start at p+1 and travel once around.
void add_ring_reduce(StepList& list, const Ring& ring, int first) {
  const int n = static_cast<int>(ring.order.size());
  for (int k = 0; k < n - 1; ++k)
    for (int p = 0; p < n; ++p)
      for (const int chunk : ring.chunks[static_cast<size_t>((p - 1 - k + 2 * n) % n)])
        list.steps.push_back({first + k, ring.order[static_cast<size_t>(p)],
                              ring.order[static_cast<size_t>((p + 1) % n)], chunk, Action::reduce});
}

// The chunks of each place start there.
void add_ring_gather(StepList& list, const Ring& ring, int first) {
  const int n = static_cast<int>(ring.order.size());
  for (int k = 0; k < n - 1; ++k)
    for (int p = 0; p < n; ++p)
      for (const int chunk : ring.chunks[static_cast<size_t>((p - k + n) % n)])
        list.steps.push_back({first + k, ring.order[static_cast<size_t>(p)],
                              ring.order[static_cast<size_t>((p + 1) % n)], chunk, Action::copy});
}

void sort_by_round(StepList& list) {
  std::stable_sort(list.steps.begin(), list.steps.end(),
                   [](const Step& a, const Step& b) { return a.round < b.round; });
}

// Rings that go round at the same time, one phase after another.
void add_rings(StepList& list, const std::vector<Ring>& rings, Action action) {
  const int first = rounds(list);
  for (const Ring& ring : rings) {
    if (action == Action::reduce) add_ring_reduce(list, ring, first);
    if (action == Action::copy) add_ring_gather(list, ring, first);
  }
  sort_by_round(list);
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

StepList ring(Collective collective, int ranks, int ranks_per_node) {
  if (collective == Collective::broadcast) refuse("ring", collective);
  StepList list = empty_list(collective, "ring", ranks);
  const int channels = ring_channels(ranks, ranks_per_node);
  list.chunks = ranks * channels;
  std::vector<Ring> rings;
  for (int c = 0; c < channels; ++c) {
    Ring one{ring_order(ranks, ranks_per_node, c), {}};
    for (const int rank : one.order) one.chunks.push_back({rank * channels + c});
    rings.push_back(std::move(one));
  }
  if (reduces(collective)) add_rings(list, rings, Action::reduce);
  if (gathers(collective)) add_rings(list, rings, Action::copy);
  return list;
}

StepList tree(Collective collective, int ranks, int ranks_per_node, int pieces) {
  if (collective != Collective::all_reduce) refuse("tree", collective);
  StepList list = empty_list(collective, "tree", ranks);
  const std::vector<Tree> both = trees(ranks, ranks_per_node);
  if (pieces < 1) throw UsageError("a tree needs at least 1 piece, not " + std::to_string(pieces));
  list.chunks = static_cast<int>(both.size()) * pieces;
  for (size_t t = 0; t < both.size(); ++t) {
    const Tree& one = both[t];
    for (int r = 0; r < ranks; ++r) {
      const int parent = one.parent[static_cast<size_t>(r)];
      if (parent < 0) continue;
      for (int piece = 0; piece < pieces; ++piece) {
        const int chunk = static_cast<int>(t) * pieces + piece;
        list.steps.push_back({one.round_up(r) + piece, r, parent, chunk, Action::reduce});
        list.steps.push_back({one.round_down(r) + piece, parent, r, chunk, Action::copy});
      }
    }
  }
  sort_by_round(list);
  return list;
}

StepList hierarchical(Collective collective, int ranks, int ranks_per_node) {
  if (collective == Collective::broadcast) refuse("hierarchical", collective);
  StepList list = empty_list(collective, "hierarchical", ranks);
  const int nodes = nodes_of(ranks, ranks_per_node);
  std::vector<Ring> inside, rails;
  for (int node = 0; node < nodes; ++node) {
    Ring one;
    for (int place = 0; place < ranks_per_node; ++place) {
      one.order.push_back(node * ranks_per_node + place);
      one.chunks.emplace_back();  // all of its rail's
      for (int k = 0; k < nodes; ++k) one.chunks.back().push_back(k * ranks_per_node + place);
    }
    inside.push_back(std::move(one));
  }
  for (int place = 0; place < ranks_per_node; ++place) {
    Ring one;
    for (int node = 0; node < nodes; ++node) {
      one.order.push_back(node * ranks_per_node + place);
      one.chunks.push_back({one.order.back()});
    }
    rails.push_back(std::move(one));
  }
  if (reduces(collective)) {
    add_rings(list, inside, Action::reduce);
    add_rings(list, rails, Action::reduce);
  }
  if (gathers(collective)) {
    add_rings(list, rails, Action::copy);
    add_rings(list, inside, Action::copy);
  }
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

StepList build(Collective collective, std::string_view algorithm, int ranks, int ranks_per_node, int pieces) {
  if (algorithm == "ring") return ring(collective, ranks, ranks_per_node);
  if (algorithm == "direct") return direct(collective, ranks);
  if (algorithm == "halving_doubling") return halving_doubling(collective, ranks);
  if (algorithm == "tree") return tree(collective, ranks, ranks_per_node, pieces);
  if (algorithm == "hierarchical") return hierarchical(collective, ranks, ranks_per_node);
  throw UsageError("unknown collective algorithm '" + std::string(algorithm) +
                   "'; known: ring, direct, halving_doubling, tree, hierarchical");
}

std::vector<std::string> algorithms_for(Collective collective, int ranks, int ranks_per_node) {
  std::vector<std::string> names;
  for (const std::string_view name : algorithm_names) {
    if (exists(collective, name, ranks, ranks_per_node)) names.emplace_back(name);
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
