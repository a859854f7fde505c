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
// contribution in all of them; for all_gather only in chunk r of rank r, for broadcast only on rank 0.
// At the end: all_reduce, every chunk on every rank is the sum of all; reduce_scatter, chunk r on rank r is;
// all_gather, every rank holds every chunk; broadcast, every rank holds what rank 0 had.
struct StepList {
  Collective collective;
  std::string algorithm;
  int ranks, chunks;
  std::vector<Step> steps;  // ascending by round
};

// Every builder takes any number of ranks from 1 (one rank: no steps) unless it says otherwise; UsageError
// else.

// Neighbour to neighbour, chunk by chunk: bandwidth-optimal, N-1 rounds a phase. Patarasu and Yuan,
// "Bandwidth optimal all-reduce algorithms for clusters of workstations", JPDC 69(2), 2009. all_reduce,
// all_gather, reduce_scatter.
StepList ring(Collective collective, int ranks);

// Everyone sends straight to whom it concerns, one round a phase. All four.
StepList direct(Collective collective, int ranks);

// Recursive halving, then doubling: 2 log2 N rounds and the ring's bytes, powers of two only. Thakur,
// Rabenseifner, Gropp, "Optimization of collective communication operations in MPICH", IJHPCA 19(1), 2005.
// all_reduce.
StepList halving_doubling(Collective collective, int ranks);

// By name: "ring", "direct", "halving_doubling".
StepList build(Collective collective, std::string_view algorithm, int ranks);
std::vector<std::string> algorithms_for(Collective collective, int ranks);

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
