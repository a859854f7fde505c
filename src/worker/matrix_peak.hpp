// The fastest matrix products that this machine gives the workers of a run: what MFU is a share of.
#pragma once

#include <chrono>

#include "comm/communicator.hpp"
#include "config/run_file.hpp"
#include "observe/step_record.hpp"

namespace lockstep::worker {

// Cores that this process may run on (its affinity, not the machine's size).
int usable_cores();

// FLOP/s of one square product of the run's type after another (at::mm, 512 x 512, the calling thread alone,
// operands in the cache): the best of many short windows within `time`.
double product_rate(config::Dtype dtype, std::chrono::duration<double> time);

// The sum over as many workers as there are cores, all at once, while the others wait; about 0.15 s. All
// ranks of `world` call it together, and all get the same.
observe::MatrixPeak measure_matrix_peak(config::Dtype dtype, comm::Communicator& world, int cores);

}  // namespace lockstep::worker
