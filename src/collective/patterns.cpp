#include "collective/patterns.hpp"

#include <algorithm>
#include <bit>
#include <tuple>

#include "collective/shapes.hpp"

namespace lockstep::collective {
namespace {

// Sorts, and adds up what goes the same way.
std::vector<PatternFlow> merged(std::vector<PatternFlow> flows) {
  std::sort(flows.begin(), flows.end(), [](const PatternFlow& a, const PatternFlow& b) {
    return std::tie(a.from, a.to) < std::tie(b.from, b.to);
  });
  size_t last = 0;
  for (size_t i = 1; i < flows.size(); ++i) {
    if (flows[i].from == flows[last].from && flows[i].to == flows[last].to) {
      flows[last].chunks += flows[i].chunks;
    } else {
      flows[++last] = flows[i];
    }
  }
  if (!flows.empty()) flows.resize(last + 1);
  return flows;
}

void append(Patterns& patterns, RoundPattern next) {
  if (next.rounds == 0 || next.flows.empty()) return;
  if (!patterns.rounds.empty() && patterns.rounds.back().flows == next.flows) {
    patterns.rounds.back().rounds += next.rounds;
  } else {
    patterns.rounds.push_back(std::move(next));
  }
}

RoundPattern ring_round(int ranks, int ranks_per_node) {
  RoundPattern pattern{{}, ranks - 1};
  for (int c = 0; c < ring_channels(ranks, ranks_per_node); ++c) {
    const std::vector<int> order = ring_order(ranks, ranks_per_node, c);
    for (size_t p = 0; p < order.size(); ++p) {
      pattern.flows.push_back({order[p], order[(p + 1) % order.size()], 1});
    }
  }
  pattern.flows = merged(std::move(pattern.flows));
  return pattern;
}

RoundPattern direct_round(Collective collective, int ranks) {
  RoundPattern pattern;
  const int senders = collective == Collective::broadcast ? 1 : ranks;
  for (int from = 0; from < senders; ++from) {
    for (int to = 0; to < ranks; ++to) {
      if (to != from) pattern.flows.push_back({from, to, 1});
    }
  }
  return pattern;
}

// Rings of neighbours that are `stride` ranks apart, each chunk of a place as many as `chunks`.
RoundPattern strided_rings(int ranks, int size, int stride, int chunks) {
  RoundPattern pattern{{}, size - 1};
  for (int r = 0; r < ranks; ++r) {
    const int place = r / stride % size;
    pattern.flows.push_back({r, r + ((place + 1) % size - place) * stride, chunks});
  }
  return pattern;
}

Patterns hierarchical_patterns(Collective collective, int ranks, int ranks_per_node) {
  const int nodes = nodes_of(ranks, ranks_per_node);
  const RoundPattern inside = strided_rings(ranks, ranks_per_node, 1, nodes);
  const RoundPattern rails = strided_rings(ranks, nodes, ranks_per_node, 1);
  Patterns out{ranks, {}};
  if (reduces(collective)) {
    append(out, inside);
    append(out, rails);
  }
  if (gathers(collective)) {
    append(out, rails);
    append(out, inside);
  }
  return out;
}

Patterns halving_doubling_patterns(int ranks) {
  Patterns out{ranks, {}};
  const auto exchange = [&](int distance) {
    RoundPattern pattern;
    for (int r = 0; r < ranks; ++r) pattern.flows.push_back({r, r ^ distance, distance});
    append(out, std::move(pattern));
  };
  for (int distance = ranks / 2; distance >= 1; distance /= 2) exchange(distance);
  for (int distance = 1; distance < ranks; distance *= 2) exchange(distance);
  return out;
}

// Edges on which a piece is under way in `round`.
RoundPattern tree_round(const std::vector<Tree>& all, int pieces, int round) {
  RoundPattern pattern;
  const auto active = [&](int first) { return round >= first && round < first + pieces; };
  for (const Tree& tree : all) {
    for (int r = 0; r < static_cast<int>(tree.parent.size()); ++r) {
      const int parent = tree.parent[static_cast<size_t>(r)];
      if (parent < 0) continue;
      if (active(tree.round_up(r))) pattern.flows.push_back({r, parent, 1});
      if (active(tree.round_down(r))) pattern.flows.push_back({parent, r, 1});
    }
  }
  pattern.flows = merged(std::move(pattern.flows));
  return pattern;
}

Patterns tree_patterns(int ranks, int ranks_per_node, int pieces) {
  const std::vector<Tree> all = trees(ranks, ranks_per_node);
  Patterns out{static_cast<int>(all.size()) * pieces, {}};
  int ways = 0;  // rounds that a piece needs
  for (const Tree& tree : all) ways = std::max(ways, 2 * tree.root_height);
  for (int round = 0; round < ways + pieces - 1; ++round) {
    const bool all_busy = round >= ways && round < pieces;
    if (all_busy) {
      ++out.rounds.back().rounds;
    } else {
      append(out, tree_round(all, pieces, round));
    }
  }
  return out;
}

}  // namespace

Patterns patterns_of(const StepList& list) {
  Patterns out{list.chunks, {}};
  for (size_t i = 0; i < list.steps.size();) {
    RoundPattern pattern;
    const int round = list.steps[i].round;
    for (; i < list.steps.size() && list.steps[i].round == round; ++i) {
      pattern.flows.push_back({list.steps[i].from, list.steps[i].to, 1});
    }
    pattern.flows = merged(std::move(pattern.flows));
    append(out, std::move(pattern));
  }
  return out;
}

Patterns round_patterns(Collective collective, std::string_view algorithm, int ranks, int ranks_per_node,
                        int pieces) {
  if (ranks < 2 || !exists(collective, algorithm, ranks, ranks_per_node)) {
    return patterns_of(build(collective, algorithm, ranks, ranks_per_node, pieces));
  }
  const bool both = collective == Collective::all_reduce;
  if (algorithm == "tree") return tree_patterns(ranks, ranks_per_node, pieces);
  if (algorithm == "hierarchical") return hierarchical_patterns(collective, ranks, ranks_per_node);
  if (algorithm == "halving_doubling") return halving_doubling_patterns(ranks);
  const bool ring = algorithm == "ring";
  RoundPattern round = ring ? ring_round(ranks, ranks_per_node) : direct_round(collective, ranks);
  if (both) round.rounds *= 2;
  const int chunks = collective == Collective::broadcast ? 1 : ranks;
  Patterns out{ring ? chunks * ring_channels(ranks, ranks_per_node) : chunks, {}};
  append(out, std::move(round));
  return out;
}

RoundPattern full_tree_round(int ranks, int ranks_per_node) {
  RoundPattern pattern;
  for (const Tree& tree : trees(ranks, ranks_per_node)) {
    for (int r = 0; r < ranks; ++r) {
      const int parent = tree.parent[static_cast<size_t>(r)];
      if (parent < 0) continue;
      pattern.flows.push_back({r, parent, 1});
      pattern.flows.push_back({parent, r, 1});
    }
  }
  pattern.flows = merged(std::move(pattern.flows));
  return pattern;
}

}  // namespace lockstep::collective
