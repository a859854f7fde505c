// Measures collectives between processes of this machine, in the terms of nccl-tests.
#pragma once

#include <string>
#include <vector>

#include "collective/steps.hpp"

namespace lockstep::comm {

struct BenchOptions {
  collective::Collective collective = collective::Collective::all_reduce;
  int ranks = 8;
  // Of the whole buffer of fp32, as nccl-tests counts: for all_gather the output, for reduce_scatter the
  // input.
  std::vector<size_t> bytes = {1024, 1 << 20, 1 << 26};
  std::string algorithm;  // empty: the communicator's own, as training uses it; else a step list's
  int repetitions = 7;    // the median of so many is told
  int iterations = 0;     // calls in a repetition; 0: 3 to 100, fewer for larger buffers
};

// One line of the result; field names are those of `lockstep bench collective --json`.
struct BenchRow {
  std::string collective, algorithm;  // "local": the communicator's own over shared memory
  int ranks = 0;
  size_t bytes = 0;
  double microseconds = 0;  // of one call, on the slowest rank
  double algbw_gbps = 0;    // bytes / time, GB/s
  double busbw_gbps =
      0;             // algbw x 2(n-1)/n for all_reduce, (n-1)/n for all_gather and reduce_scatter, 1 else
  size_t wrong = 0;  // elements on all ranks that differ from plain sums, checked before and after the timing
};

// Starts `ranks` processes (fork: call it while this process has no threads), which die with this one.
// Private, touched buffers, in place. UsageError for sizes that do not divide or exceed the
// memory, RunError if a process fails.
std::vector<BenchRow> bench_collective(const BenchOptions& options);

}  // namespace lockstep::comm
