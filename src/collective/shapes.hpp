// What the forms of an algorithm (step list, round patterns) have in common: where there is one, which ranks
// a ring goes through, which trees there are.
#pragma once

#include <string_view>
#include <vector>

#include "collective/steps.hpp"

namespace lockstep::collective {

constexpr bool reduces(Collective c) {
  return c == Collective::all_reduce || c == Collective::reduce_scatter;
}
constexpr bool gathers(Collective c) { return c == Collective::all_reduce || c == Collective::all_gather; }

// Whether there is such an algorithm for such a group. "hierarchical" needs several ranks in a node.
bool exists(Collective collective, std::string_view algorithm, int ranks, int ranks_per_node);
// UsageError that names those that there are.
[[noreturn]] void refuse(std::string_view algorithm, Collective collective);
// UsageError where `ranks_per_node` does not divide the ranks.
int nodes_of(int ranks, int ranks_per_node);

// One tree over all ranks. A rank sends a piece up in the round after its last child's has come; the root
// sends the sum down in the next.
struct Tree {
  std::vector<int> parent;  // -1: the root
  std::vector<int> height;  // over the lowest rank below; 0: a leaf
  std::vector<int> depth;   // below the root
  int root_height = 0;

  int round_up(int rank) const { return height[static_cast<size_t>(rank)]; }
  // In which the first piece comes down to `rank`.
  int round_down(int rank) const { return root_height + depth[static_cast<size_t>(rank)] - 1; }
};

// NCCL's double binary trees: two for each of the ranks of a node. Of each two, the first is the binary tree
// over nodes in which a node hangs on the one whose number has the next higher bit; the second is its mirror
// image, or with an odd number of nodes the first one shifted by one node, so that hardly a node is inner
// node of both (src/graph/trees.cc). The ranks of a node form a chain below the one that stands for it,
// another one in each pair of trees, so that all NICs of a node carry the same traffic.
std::vector<Tree> trees(int ranks, int ranks_per_node);

}  // namespace lockstep::collective
