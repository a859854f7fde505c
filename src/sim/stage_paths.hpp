// The network as one pipeline stage's lanes see it: the ring of each lane's group along every axis, and the
// way to the stages that it sends to.
#pragma once

#include <map>
#include <vector>

#include "cluster/network.hpp"
#include "parallel/mesh.hpp"
#include "sim/lanes.hpp"

namespace lockstep::sim {

// Parallel arrays of cluster::Path, for loops over lanes.
struct PathArrays {
  std::vector<double> latency;
  std::vector<double> seconds_per_byte;

  PathArrays() = default;
  explicit PathArrays(size_t count) : latency(count, 0.0), seconds_per_byte(count, 0.0) {}
  void set(size_t i, const cluster::Path& path) {
    latency[i] = path.latency;
    seconds_per_byte[i] = path.seconds_per_byte;
  }
  double seconds(size_t i, double rounds, double bytes) const {
    return rounds * latency[i] + bytes * seconds_per_byte[i];
  }
};

struct StagePaths {
  PathArrays tp;                      // by column
  PathArrays tp_kv;                   // by lane
  PathArrays cp;                      // by lane
  PathArrays dp;                      // of dp_cp, by tp rank
  PathArrays pp;                      // by lane: ring over the stages
  PathArrays pp_ends;                 // by lane: first and last stage
  std::map<int, PathArrays> message;  // by peer stage, by lane
};

// Every stage's paths, with all groups of an axis moving at once (see cluster/network.hpp).
std::vector<StagePaths> stage_paths(const cluster::Network& network, const parallel::Mesh& mesh,
                                    const LaneGrid& grid);

// For one lane a stage: messages cost nothing. Tensor- and context-parallel collectives cost nothing either,
// or what the slowest group of the stage in `real` needs.
std::vector<StagePaths> free_paths(int stages);
std::vector<StagePaths> free_messages(const std::vector<StagePaths>& real);

}  // namespace lockstep::sim
