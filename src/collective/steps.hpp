// Collective algorithms as lists of steps. What an algorithm is stands here alone: an executor runs the list
// over a transport, the simulator prices it on a topology, tests prove it by symbolic execution.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace lockstep::collective {

enum class Collective : uint8_t { all_reduce, all_gather, reduce_scatter, broadcast };
enum class Action : uint8_t { reduce, copy };

std::string_view name_of(Collective collective);
// UsageError names the known ones.
Collective collective_of(std::string_view name);

// In `round`, rank `from` sends `chunk` to rank `to`, which adds it to its own or replaces its own. All steps
// of a round read what the round before left, so no chunk of a rank is both read and written in one round.
struct Step {
  int round, from, to, chunk;
  Action action;
  bool operator==(const Step&) const = default;
};

// The buffer of every rank is cut into `chunks` nearly equal chunks. At the start each rank holds its own
// contribution in all of them; for all_gather only in its own chunks, for broadcast only on rank 0. At the
// end: all_reduce, every chunk on every rank is the sum of all; reduce_scatter, each rank's own chunks are;
// all_gather, every rank holds every chunk; broadcast, every rank holds what rank 0 had. A rank's own chunks
// are its equal share of the list in the ranks' order: chunk r alone where there are as many as ranks.
struct StepList {
  Collective collective;
  std::string algorithm;
  int ranks, chunks;
  std::vector<Step> steps;  // ascending by round
};

// Every builder takes any number of ranks from 1 (one rank: no steps) unless it says otherwise; UsageError
// else. `ranks_per_node` must divide the ranks; ranks are numbered node after node.

// Neighbour to neighbour, chunk by chunk: bandwidth-optimal, N-1 rounds a phase. Patarasu and Yuan,
// "Bandwidth optimal all-reduce algorithms for clusters of workstations", JPDC 69(2), 2009. all_reduce,
// all_gather, reduce_scatter. With several ranks in each of several nodes it is as many rings (NCCL's
// channels), each with its part of every rank's chunk; see ring_order.
StepList ring(Collective collective, int ranks, int ranks_per_node = 1);

// The ranks in the order of ring `channel` of ring_channels(). Every ring goes through all ranks of a node,
// but enters and leaves each node at other ranks than the other rings do, so that all NICs of a node carry
// the same traffic; it leaves where it enters the next node, so that with an even number of nodes all hops
// between nodes join ranks of the same place (NCCL alternates so with NCCL_CROSS_NIC = 2:
// src/graph/connect.cc).
int ring_channels(int ranks, int ranks_per_node);
std::vector<int> ring_order(int ranks, int ranks_per_node, int channel);

// Everyone sends straight to whom it concerns, one round a phase. All four.
StepList direct(Collective collective, int ranks);

// Recursive halving, then doubling: 2 log2 N rounds and the ring's bytes, powers of two only. Thakur,
// Rabenseifner, Gropp, "Optimization of collective communication operations in MPICH", IJHPCA 19(1), 2005.
// all_reduce.
StepList halving_doubling(Collective collective, int ranks);

// Sums go up a tree and come down again, half of the buffer in each of two trees in which no rank is inner
// node twice: log N rounds, and the ring's bytes once pieces follow one another. Sanders, Speck, Traff,
// "Two-tree algorithms for full bandwidth broadcast, reduction and scan", Parallel Computing 35(12), 2009.
// The trees are NCCL's (collective/shapes.hpp): over nodes, a chain of a node's ranks at each; `pieces`
// pieces of each tree's share of the buffer follow one another. all_reduce.
StepList tree(Collective collective, int ranks, int ranks_per_node = 1, int pieces = 1);

// Inside each node a ring reduces and scatters; then the ranks of the same place in their nodes (a rail) go
// round a ring, all rails at once; then a ring inside each node gathers. NVLink carries what NICs need not.
// Cho, Finkler, Serrano, Kung, Hunter, "BlueConnect: Decomposing all-reduce for deep learning on
// heterogeneous network hierarchy", MLSys 2019. all_reduce, all_gather, reduce_scatter.
StepList hierarchical(Collective collective, int ranks, int ranks_per_node);

// By name: "ring", "direct", "halving_doubling", "tree", "hierarchical".
StepList build(Collective collective, std::string_view algorithm, int ranks, int ranks_per_node = 1,
               int pieces = 1);
// "hierarchical" is only there where nodes have several ranks.
std::vector<std::string> algorithms_for(Collective collective, int ranks, int ranks_per_node = 1);

int rounds(const StepList& list);
// What `rank` sends or receives in all, as a fraction of the buffer (chunks taken as equal).
double sent_fraction(const StepList& list, int rank);
double received_fraction(const StepList& list, int rank);

// Half-open range of elements of a chunk when `count` elements are cut into `chunks`: the first ones are
// longer by one.
struct Range {
  size_t begin, end;
  size_t size() const { return end - begin; }
};
Range chunk_range(size_t count, int chunks, int chunk);

}  // namespace lockstep::collective
