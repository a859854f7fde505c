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
    : nic_(2 * ranks),
      upper_(4 * ranks),
      nvlink_bandwidth_(cluster.nvlink_bandwidth * (cluster.nvlink_efficiency > 0
                                                        ? cluster.nvlink_efficiency
                                                        : cluster.network_efficiency)),
      nic_bandwidth_(cluster.nic_bandwidth * cluster.network_efficiency),
      seed_(seed) {
  if (cluster.gpus_per_node < 1 || cluster.gpus_per_rack < 1 || cluster.gpus_per_pod < 1) {
    throw std::invalid_argument("a network needs the sizes of a node, a rack and a pod");
  }
  place_ranks(cluster, ranks);
  for (const config::SlowRank& slow : slow_links) {
    if (slow.rank >= 0 && slow.rank < ranks) slow_.push_back(slow);
  }
  const bool rails = cluster.topology == config::Topology::rails;
  const int64_t below_first = rails ? cluster.gpus_per_pod / cluster.gpus_per_node : cluster.gpus_per_rack;
  const double out_of_first =
      nic_bandwidth_ * static_cast<double>(below_first) / cluster.rack_oversubscription;
  const double out_of_pod = nic_bandwidth_ * static_cast<double>(cluster.gpus_per_pod) /
                            cluster.rack_oversubscription / cluster.pod_oversubscription;
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
  layer.up = this->links();
  layer.down = layer.up + static_cast<int>(links);
  above_.resize(above_.size() + 2 * links, bandwidth / layer.uplinks);
  return layer;
}

double Fabric::nic_capacity(int link) const {
  double capacity = nic_bandwidth_;
  for (const config::SlowRank& slow : slow_) {
    if ((link - nic_) % ranks() == slow.rank) capacity /= slow.factor;
  }
  return capacity;
}

std::vector<double> Fabric::capacities() const {
  std::vector<double> all(static_cast<size_t>(nic_), nvlink_bandwidth_);
  all.resize(static_cast<size_t>(upper_), nic_bandwidth_);
  for (const config::SlowRank& slow : slow_) {
    for (const int port : {nic_, nic_ + ranks()}) {
      all[static_cast<size_t>(port) + static_cast<size_t>(slow.rank)] =
          nic_capacity(port + static_cast<int>(slow.rank));
    }
  }
  all.insert(all.end(), above_.begin(), above_.end());
  return all;
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
