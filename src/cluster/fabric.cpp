#include "cluster/fabric.hpp"

#include <algorithm>
#include <stdexcept>

#include "base/philox.hpp"

namespace lockstep::cluster {

namespace {

int size_of(int64_t count) { return static_cast<int>(std::max<int64_t>(count, 1)); }

}  // namespace

Fabric::Fabric(const config::ClusterConfig& cluster, int ranks,
               const std::vector<config::SlowRank>& slow_links, uint64_t seed)
    : seed_(seed), even_(cluster.rack_uplinks == 0 && cluster.pod_uplinks == 0) {
  if (cluster.gpus_per_node < 1 || cluster.gpus_per_rack < 1 || cluster.gpus_per_pod < 1) {
    throw std::invalid_argument("a network needs the sizes of a node, a rack and a pod");
  }
  place_ranks(cluster, ranks);
  const size_t n = places_.size();
  nic_ = static_cast<int>(2 * n);
  const double nic = cluster.nic_bandwidth * cluster.network_efficiency;
  capacities_.assign(2 * n, cluster.nvlink_bandwidth * cluster.network_efficiency);
  capacities_.resize(4 * n, nic);
  for (const config::SlowRank& slow : slow_links) {
    if (slow.rank < 0 || slow.rank >= ranks) continue;
    const size_t out = 2 * n + static_cast<size_t>(slow.rank);
    capacities_[out] /= slow.factor;
    capacities_[out + n] /= slow.factor;
    even_ = false;
  }
  const bool rails = cluster.topology == config::Topology::rails;
  const int64_t below_first = rails ? cluster.gpus_per_pod / cluster.gpus_per_node : cluster.gpus_per_rack;
  const double out_of_first = nic * static_cast<double>(below_first) / cluster.rack_oversubscription;
  const double out_of_pod = nic * static_cast<double>(cluster.gpus_per_pod) / cluster.rack_oversubscription /
                            cluster.pod_oversubscription;
  int switches = 0, pods = 0;
  for (const Place& place : places_) {
    switches = std::max(switches, place.first_switch + 1);
    pods = std::max(pods, place.pod + 1);
  }
  first_ = add_layer(switches, cluster.rack_uplinks, out_of_first, cluster.rack_oversubscription > 1);
  pods_ = add_layer(pods, cluster.pod_uplinks, out_of_pod, cluster.pod_oversubscription > 1);
}

void Fabric::place_ranks(const config::ClusterConfig& cluster, int ranks) {
  const int per_node = size_of(cluster.gpus_per_node), per_rack = size_of(cluster.gpus_per_rack),
            per_pod = size_of(cluster.gpus_per_pod);
  const bool rails = cluster.topology == config::Topology::rails;
  places_.resize(static_cast<size_t>(ranks));
  for (int r = 0; r < ranks; ++r) {
    Place& place = places_[static_cast<size_t>(r)];
    place.node = r / per_node;
    place.pod = r / per_pod;
    place.first_switch = rails ? place.pod * per_node + r % per_node : r / per_rack;
  }
}

Fabric::Layer Fabric::add_layer(int switches, int64_t uplinks, double bandwidth, bool can_fill) {
  Layer layer;
  layer.uplinks = size_of(uplinks);
  // As much above as below, spread evenly: the NICs below fill up first.
  layer.matters = can_fill || uplinks > 0;
  if (!layer.matters) return layer;
  const auto links = static_cast<size_t>(switches) * static_cast<size_t>(layer.uplinks);
  layer.up = static_cast<int>(capacities_.size());
  layer.down = layer.up + static_cast<int>(links);
  capacities_.resize(capacities_.size() + 2 * links, bandwidth / layer.uplinks);
  return layer;
}

void Fabric::pass_layers(Path& path, int from, int to) const {
  const Place &a = places_[static_cast<size_t>(from)], &b = places_[static_cast<size_t>(to)];
  PhiloxCounter hash{};
  if (first_.uplinks > 1 || pods_.uplinks > 1) {
    hash = philox4x32({static_cast<uint32_t>(from), static_cast<uint32_t>(to), 0, 0},
                      philox_key(seed_, "uplink"));
  }
  if (first_.matters) {
    // Inside a pod the link up is the link to a switch of the layer above, from which one leads down.
    const uint32_t down = path.way.layers == 1 ? hash[0] : hash[1];
    path.pass(first_.up + a.first_switch * first_.uplinks + first_.hashed(hash[0]));
    path.pass(first_.down + b.first_switch * first_.uplinks + first_.hashed(down));
  }
  if (path.way.layers > 1 && pods_.matters) {
    path.pass(pods_.up + a.pod * pods_.uplinks + pods_.hashed(hash[2]));
    path.pass(pods_.down + b.pod * pods_.uplinks + pods_.hashed(hash[2]));
  }
}

}  // namespace lockstep::cluster
