// The links of a modelled cluster, and which of them the way from one rank to another passes.
//
// Rank r runs on GPU r; GPUs are numbered node after node, nodes rack after rack, racks pod after pod. Every
// GPU has an NVLink port into its node's switch and a NIC of its own (as H100 servers do). NICs hang on first
// switches: one a rack, or with cluster.topology = "rails" one for each place in a node in every pod. Above
// them a pod has a layer that joins its first switches, and above the pods another one joins those. What
// leaves a first switch shares the bandwidth below it / rack_oversubscription; what leaves a pod that /
// pod_oversubscription (Llama 3, arXiv:2407.21783, section 3.3.1: 1:7 above pods of 3,072 GPUs). Every link
// carries both directions at once; network_efficiency is what of its bandwidth data gets (nvlink_efficiency
// of NVLink's). First switches and pods have all GPUs that they can hold, whether the run uses them or not.
//
// With rack_uplinks or pod_uplinks = K the way up is K equal links, and each pair of ranks is hashed to one
// of them, as equal-cost multipath routing does (RFC 2992): two pairs may meet on one link while others idle.
// With 0 traffic is spread evenly.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <vector>

#include "config/run_file.hpp"

namespace lockstep::cluster {

// What a message passes on its way, for its latency.
struct Way {
  bool nvlink = false;
  bool nic = false;
  int16_t layers = 0;  // switch layers above the first
  bool operator==(const Way&) const = default;
};

class Fabric {
 public:
  // `cluster` has passed config's rules. The links of `slow_links`' ranks out of their nodes are slower by
  // the factor, both ways; ranks beyond `ranks` are ignored. `seed`: of the hash. Throws invalid_argument
  // when the sizes of node, rack or pod are missing.
  Fabric(const config::ClusterConfig& cluster, int ranks, const std::vector<config::SlowRank>& slow_links,
         uint64_t seed);

  int ranks() const { return static_cast<int>(places_.size()); }
  int node(int rank) const { return places_[static_cast<size_t>(rank)].node; }
  int links() const { return upper_ + static_cast<int>(above_.size()); }
  // Of a link, bytes/s.
  double capacity(int link) const {
    if (link >= upper_) return above_[static_cast<size_t>(link - upper_)];
    if (link < nic_) return nvlink_bandwidth_;
    return slow_.empty() ? nic_bandwidth_ : nic_capacity(link);
  }
  std::vector<double> capacities() const;

  Way way(int from, int to) const;
  // The links that data from `from` to `to` passes; none from a rank to itself. Links that can never fill up
  // before a NIC does are left out.
  class Path {
   public:
    std::span<const int> links() const& { return {links_.data(), count_}; }
    void links() && = delete;  // they would not outlive it
    Way way;

   private:
    friend class Fabric;
    void pass(int link) { links_[count_++] = link; }
    std::array<int, 6> links_;
    size_t count_ = 0;
  };
  Path path(int from, int to) const;

 private:
  struct Place {
    int node = 0;
    int first_switch = 0;
    int pod = 0;
  };
  // Links up and down of all switches of a layer, one after another.
  struct Layer {
    int up = 0, down = 0;  // the first link
    int uplinks = 1;       // of a switch
    bool matters = false;  // whether it can be crowded
    int hashed(uint32_t hash) const { return static_cast<int>(hash % static_cast<uint32_t>(uplinks)); }
  };
  Layer add_layer(int switches, int64_t uplinks, double bandwidth, bool can_fill);
  void place_ranks(const config::ClusterConfig& cluster, int ranks);
  double nic_capacity(int link) const;
  void pass_layers(Path& path, int from, int to) const;

  std::vector<Place> places_;
  // Links: NVLink out of every GPU, into every GPU, NIC out, NIC in, then those above the first switches.
  int nic_ = 0, upper_ = 0;  // the first of each
  double nvlink_bandwidth_, nic_bandwidth_;
  std::vector<config::SlowRank> slow_;
  std::vector<double> above_;  // capacities
  Layer first_, pods_;
  uint64_t seed_;
};

inline Way Fabric::way(int from, int to) const {
  if (from == to) return {};
  const Place &a = places_[static_cast<size_t>(from)], &b = places_[static_cast<size_t>(to)];
  if (a.node == b.node) return {true, false, 0};
  if (a.pod != b.pod) return {false, true, 2};
  return {false, true, static_cast<int16_t>(a.first_switch == b.first_switch ? 0 : 1)};
}

inline Fabric::Path Fabric::path(int from, int to) const {
  Path path;
  path.way = way(from, to);
  const int n = ranks();
  if (path.way.nvlink) {
    path.pass(from);
    path.pass(n + to);
  } else if (path.way.nic) {
    path.pass(nic_ + from);
    path.pass(nic_ + n + to);
    if (path.way.layers > 0) pass_layers(path, from, to);
  }
  return path;
}

}  // namespace lockstep::cluster
