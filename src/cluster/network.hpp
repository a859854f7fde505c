// Where ranks stand in a modelled cluster, and what the way between two of them gives.
//
// Rank r runs on GPU r; GPUs are numbered node after node, nodes rack after rack, racks pod after pod. Inside
// a node data goes over NVLink, outside over the GPU's own NIC (one a GPU, as on H100 servers); a pod has
// full bandwidth inside, and above it its GPUs share gpus_per_pod x nic_bandwidth / pod_oversubscription in
// each direction (Llama 3, arXiv:2407.21783, section 3.3.1). Every link carries both directions at once.
//
// A path's bandwidth depends on what else moves: transfers that go on at the same time share what they have
// in common in equal parts. A transfer gets the smallest of its shares; for patterns in which all ranks do
// the same, as a mesh axis' are, that is the max-min fair share.
#pragma once

#include <cstdint>
#include <functional>
#include <vector>

#include "config/run_file.hpp"

namespace lockstep::cluster {

enum class Reach : uint8_t { self, node, pod, cluster };  // same GPU, node, pod, or across pods

struct Path {
  double latency = 0;           // seconds before the first byte, each message or round
  double seconds_per_byte = 0;  // of large messages, sharing and protocol included

  double seconds(double bytes) const { return latency + bytes * seconds_per_byte; }
  bool operator==(const Path&) const = default;
};

struct Flow {
  int from = 0;
  int to = 0;
};

// The ranks along one axis of a mesh: rank r has index r / stride % size and neighbours at r +- stride.
struct RankAxis {
  int world = 1;
  int stride = 1;
  int size = 1;

  int index(int rank) const { return rank / stride % size; }
  int at(int rank, int other_index) const { return rank + (other_index - index(rank)) * stride; }
};

class Network {
 public:
  // `cluster` has passed config's rules.
  explicit Network(const config::ClusterConfig& cluster);

  Reach reach(int a, int b) const;

  // The path of each flow when all of them move at once.
  std::vector<Path> concurrent_paths(const std::vector<Flow>& flows) const;

  // By rank: its path to the rank `offset` further along the axis (from the last on to the first again), when
  // every rank sends so at once.
  std::vector<Path> shift_paths(const RankAxis& axis, int offset) const;

  // By rank: the slowest hop (latency and bandwidth each) of the ring that its group forms, in the group's
  // order, when all groups go round at once. A ring moves as fast as its slowest hop. `group_of` gives the
  // group that a rank is in; groups do not overlap.
  std::vector<Path> ring_paths(int world, const std::function<std::vector<int>(int rank)>& group_of) const;

 private:
  config::ClusterConfig cluster_;
};

}  // namespace lockstep::cluster
