// What makes ranks differ: speeds, heat, pauses, lost packets. All draws are keyed by seed, step and global
// rank (or node), never by tile or thread.
#pragma once

#include <string>
#include <vector>

#include "parallel/layout.hpp"
#include "parallel/program.hpp"
#include "sim/lost_packets.hpp"
#include "sim/rare_events.hpp"
#include "sim/simulate_step.hpp"

namespace lockstep::sim {

// By global rank: how many times as long as nominal its kernels take. The product of its own speed, its
// node's throttling, the heat of the hour, and what simulate.slow says.
std::vector<double> time_factors(const parallel::Layout& layout, const StepOptions& options);

// Of a stage's lanes. `ranks`: global rank by lane.
RareEvents rare_events(const parallel::Layout& layout, const parallel::Program& program,
                       const std::vector<int>& ranks, const StepOptions& options);

bool is_throttled(const parallel::Layout& layout, int rank, const StepOptions& options);
// Whether the rank's host collects garbage in this step: once every so many steps, each at a step of its own.
bool collects_garbage(int rank, const StepOptions& options);
double heat_factor(const StepOptions& options);
// The product of all entries that name the rank; 1: none does.
double named_factor(const std::vector<config::SlowRank>& named, int rank);

// How many times as long as nominal the rank's kernels take by its own drawn speed.
double own_speed(int rank, const StepOptions& options);
// What else is imperfect about a rank, in words; empty: nothing but the draws of its ops.
std::string reasons(const parallel::Layout& layout, int rank, const StepOptions& options,
                    const LostPackets& lost);

}  // namespace lockstep::sim
