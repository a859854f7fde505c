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

// How long the passes take, by the model's chunks.
struct PassSeconds {
  std::vector<double> forward, backward;
};

// Start time of every slot when messages take nothing; same shape as `ranks`. Without `seconds` forwards take
// 1 and backwards 2. Throws RunError when the computations wait for each other in a circle.
std::vector<std::vector<double>> slot_starts(const Schedule& schedule);
std::vector<std::vector<double>> slot_starts(const Schedule& schedule, const PassSeconds& seconds);
// From the first pass's start to the last one's end, over all ranks.
double pipeline_window(const Schedule& schedule, const PassSeconds& seconds);

// Most micro-batches that `rank` holds between forward and backward at once, summed over its chunks.
int peak_live(const Schedule& schedule, int rank);

}  // namespace lockstep::parallel
