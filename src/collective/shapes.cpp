#include "collective/shapes.hpp"

#include <algorithm>
#include <bit>

#include "base/error.hpp"

namespace lockstep::collective {
namespace {

// Parents of the binary tree over `count` nodes whose root is node 0; -1: the root.
std::vector<int> binary_tree(int count) {
  std::vector<int> parent(static_cast<size_t>(count), -1);
  for (int i = 1; i < count; ++i) {
    const int bit = i & -i;
    const int up = (i ^ bit) | (bit << 1);
    parent[static_cast<size_t>(i)] = up < count ? up : i ^ bit;
  }
  return parent;
}

// The same tree with node i in the place of node place(i).
std::vector<int> second_tree(const std::vector<int>& first) {
  const int count = static_cast<int>(first.size());
  const auto other = [&](int i) { return count % 2 == 0 ? count - 1 - i : (i + 1) % count; };
  std::vector<int> parent(first.size(), -1);
  for (int i = 0; i < count; ++i) {
    const int up = first[static_cast<size_t>(i)];
    parent[static_cast<size_t>(other(i))] = up < 0 ? -1 : other(up);
  }
  return parent;
}

Tree with_heights(std::vector<int> parent) {
  const size_t n = parent.size();
  Tree tree{std::move(parent), std::vector<int>(n, 0), std::vector<int>(n, 0), 0};
  for (size_t leaf = 0; leaf < n; ++leaf) {
    int way = 0;
    for (int r = static_cast<int>(leaf); r >= 0; r = tree.parent[static_cast<size_t>(r)], ++way) {
      int& height = tree.height[static_cast<size_t>(r)];
      height = std::max(height, way);
      tree.root_height = std::max(tree.root_height, height);
    }
    tree.depth[leaf] = way - 1;
  }
  return tree;
}

// `place`: of the rank that stands for its node.
Tree over_ranks(const std::vector<int>& nodes, int ranks_per_node, int place) {
  const int g = ranks_per_node;
  std::vector<int> parent(nodes.size() * static_cast<size_t>(g));
  for (int node = 0; node < static_cast<int>(nodes.size()); ++node) {
    const int up = nodes[static_cast<size_t>(node)];
    parent[static_cast<size_t>(node * g + place)] = up < 0 ? -1 : up * g + place;
    for (int link = 1; link < g; ++link) {
      parent[static_cast<size_t>(node * g + (place + link) % g)] = node * g + (place + link - 1) % g;
    }
  }
  return with_heights(std::move(parent));
}

}  // namespace

bool exists(Collective collective, std::string_view algorithm, int ranks, int ranks_per_node) {
  if (algorithm == "direct") return true;
  if (algorithm == "tree") return collective == Collective::all_reduce;
  if (algorithm == "halving_doubling") {
    return collective == Collective::all_reduce && std::has_single_bit(static_cast<unsigned>(ranks));
  }
  if (algorithm == "hierarchical" && ranks_per_node < 2) return false;
  return collective != Collective::broadcast;
}

void refuse(std::string_view algorithm, Collective collective) {
  std::string text =
      "no " + std::string(algorithm) + " algorithm for " + std::string(name_of(collective)) + "; there is";
  for (const std::string& name : algorithms_for(collective, 2)) text += " " + name;
  throw UsageError(text);
}

int nodes_of(int ranks, int ranks_per_node) {
  if (ranks_per_node < 1 || ranks % ranks_per_node != 0) {
    throw UsageError(std::to_string(ranks) + " ranks do not fill nodes of " + std::to_string(ranks_per_node) +
                     "; use a divisor of the ranks, 1 for ranks that share no node");
  }
  return ranks / ranks_per_node;
}

int ring_channels(int ranks, int ranks_per_node) {
  return nodes_of(ranks, ranks_per_node) > 1 ? ranks_per_node : 1;
}

std::vector<int> ring_order(int ranks, int ranks_per_node, int channel) {
  const int g = ranks_per_node;
  std::vector<int> order;
  order.reserve(static_cast<size_t>(ranks));
  for (int node = 0; node < nodes_of(ranks, g); ++node) {
    for (int i = 0; i < g; ++i) {
      const int place = node % 2 == 0 ? channel + i : channel + 2 * g - 1 - i;
      order.push_back(node * g + place % g);
    }
  }
  return order;
}

std::vector<Tree> trees(int ranks, int ranks_per_node) {
  const std::vector<int> first = binary_tree(nodes_of(ranks, ranks_per_node));
  const std::vector<int> second = second_tree(first);
  std::vector<Tree> out;
  for (int place = 0; place < ranks_per_node; ++place) {
    out.push_back(over_ranks(first, ranks_per_node, place));
    out.push_back(over_ranks(second, ranks_per_node, place));
  }
  return out;
}

}  // namespace lockstep::collective
