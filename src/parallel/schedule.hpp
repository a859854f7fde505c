// Pipeline schedules: in which order each pipeline rank computes the forwards and backwards of its chunks.
// GPipe: Huang et al., arXiv:1811.06965. 1F1B: PipeDream-flush, Narayanan et al., arXiv:2006.09503.
// Interleaved 1F1B: Narayanan et al., arXiv:2104.04473; groups of fewer than `stages` micro-batches as Llama
// 3 allows them, arXiv:2407.21783 section 3.3.2.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "config/run_file.hpp"

namespace lockstep::parallel {

enum class Pass : uint8_t { forward, backward };

// One computation of one pipeline rank. `chunk` is local: 0 .. virtual_stages-1; chunk c of rank r is the
// model's chunk c * stages + r.
struct Slot {
  Pass pass = Pass::forward;
  int chunk = 0;
  int micro_batch = 0;
  bool operator==(const Slot&) const = default;
};

struct Schedule {
  int stages = 1;
  int virtual_stages = 1;
  int micro_batches = 1;
  std::vector<std::vector<Slot>> ranks;

  int chunks() const { return stages * virtual_stages; }
  int global_chunk(int rank, int chunk) const { return chunk * stages + rank; }
};

// Several chunks need several stages (std::invalid_argument). Whatever the counts, the schedule ends.
Schedule build_schedule(config::ScheduleKind kind, int stages, int virtual_stages, int micro_batches);

// Start time of every slot when forwards take 1, backwards 2 and messages nothing; same shape as `ranks`.
// Throws RunError when the computations wait for each other in a circle.
std::vector<std::vector<double>> slot_starts(const Schedule& schedule);

// Most micro-batches that `rank` holds between forward and backward at once, summed over its chunks.
int peak_live(const Schedule& schedule, int rank);

}  // namespace lockstep::parallel
