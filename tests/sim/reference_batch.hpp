// Reading batches ahead, in the plain simulator.
#pragma once

#include "config/run_file.hpp"
#include "model/op.hpp"
#include "sim/reference_simulator.hpp"

namespace lockstep::tests {

inline double read_seconds(const config::RunFile& run, const model::Op& op) {
  return run.cluster.storage_latency + static_cast<double>(op.bytes) / run.cluster.storage_bandwidth;
}

// A step takes no less than `least`: all ranks wait for their batch first.
inline void begin_later(ReferenceResult& result, double least) {
  const double wait = least - result.seconds;
  result.seconds = least;
  for (ReferenceRank& r : result.ranks) {
    for (double* time : {&r.finish, &r.data, &r.first_forward, &r.last_backward}) *time += wait;
  }
}

}  // namespace lockstep::tests
