// Pipeline schedules: in which order each pipeline rank computes the forwards and backwards of its chunks.
// GPipe: Huang et al., arXiv:1811.06965. 1F1B: PipeDream-flush, Narayanan et al., arXiv:2006.09503.
// Interleaved 1F1B: Narayanan et al., arXiv:2104.04473; groups of fewer than `stages` micro-batches as Llama
// 3 allows them, arXiv:2407.21783 section 3.3.2. On one rank several chunks take turns within a micro-batch.
// Zero-bubble H1: Qi et al., arXiv:2401.10241, section 2.2: weight gradients are put off to fill what would
// be idle, holding no more micro-batches than 1F1B's first stage does.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "config/run_file.hpp"

namespace lockstep::parallel {

enum class Pass : uint8_t {
  forward,
  backward,         // gradients of input and weights
  backward_input,   // the two
  backward_weight,  // apart
};
constexpr bool goes_back(Pass pass) { return pass == Pass::backward || pass == Pass::backward_input; }

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

// Several chunks need the interleaved schedule (std::invalid_argument). Whatever the counts, the schedule
// ends, and every chunk's backwards come in ascending micro-batch.
Schedule build_schedule(config::ScheduleKind kind, int stages, int virtual_stages, int micro_batches);

// How long the passes take, by the model's chunks.
struct PassSeconds {
  std::vector<double> forward, backward_input, backward_weight;

  double of(Pass pass, size_t chunk) const {
    if (pass == Pass::forward) return forward[chunk];
    const double input = pass == Pass::backward_weight ? 0 : backward_input[chunk];
    return input + (pass == Pass::backward_input ? 0 : backward_weight[chunk]);
  }
};

// Start time of every slot when messages take nothing; same shape as `ranks`. Without `seconds` forwards and
// the halves of backwards take 1 each. Throws RunError when the computations wait for each other in a circle.
std::vector<std::vector<double>> slot_starts(const Schedule& schedule);
std::vector<std::vector<double>> slot_starts(const Schedule& schedule, const PassSeconds& seconds);
// From the first pass's start to the last one's end, over all ranks.
double pipeline_window(const Schedule& schedule, const PassSeconds& seconds);

// Most micro-batches that `rank` holds between their forward and the end of their backward at once, summed
// over its chunks.
int peak_live(const Schedule& schedule, int rank);

}  // namespace lockstep::parallel
