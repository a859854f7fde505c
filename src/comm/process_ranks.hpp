// Runs a function as every rank of a world, each in a forked process: for benchmarks and tests.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "comm/local_world.hpp"

namespace lockstep::comm {

struct RankOutcome {
  std::string report;  // what the body returned
  std::string error;   // what it threw, or "killed by signal 9"; empty if neither
};

// Call it before this process has threads. The processes die with this one; one that throws, exits or is
// killed ends the others' waits. Returns when all have ended. RunError if processes cannot be started or
// watched; none is left then.
std::vector<RankOutcome> run_in_processes(int ranks, const std::function<std::string(World&)>& body);

}  // namespace lockstep::comm
