#include "cluster/network.hpp"

#include <algorithm>
#include <stdexcept>

namespace lockstep::cluster {

namespace {

// How many flows pass each port in one direction.
class PortUse {
 public:
  explicit PortUse(int ports) : out_(static_cast<size_t>(ports), 0), in_(static_cast<size_t>(ports), 0) {}

  void add(int from, int to) {
    ++out_[static_cast<size_t>(from)];
    ++in_[static_cast<size_t>(to)];
  }
  // Flows that the busier of the two ends serves; at least this one.
  double sharing(int from, int to) const {
    return std::max(out_[static_cast<size_t>(from)], in_[static_cast<size_t>(to)]);
  }

 private:
  std::vector<int> out_, in_;
};

int highest_rank(const std::vector<Flow>& flows) {
  int highest = 0;
  for (const Flow& f : flows) highest = std::max({highest, f.from, f.to});
  return highest;
}

}  // namespace

Network::Network(const config::ClusterConfig& cluster) : cluster_(cluster) {
  if (cluster.gpus_per_node < 1 || cluster.gpus_per_pod < 1) {
    throw std::invalid_argument("a network needs the sizes of a node and of a pod");
  }
}

Reach Network::reach(int a, int b) const {
  if (a == b) return Reach::self;
  if (a / cluster_.gpus_per_node == b / cluster_.gpus_per_node) return Reach::node;
  return a / cluster_.gpus_per_pod == b / cluster_.gpus_per_pod ? Reach::pod : Reach::cluster;
}

std::vector<Path> Network::concurrent_paths(const std::vector<Flow>& flows) const {
  const int ranks = highest_rank(flows) + 1;
  const auto pod = [&](int rank) { return static_cast<int>(rank / cluster_.gpus_per_pod); };
  PortUse nvlink(ranks), nic(ranks), uplink(pod(ranks) + 1);
  for (const Flow& f : flows) {
    const Reach way = reach(f.from, f.to);
    if (way == Reach::node) nvlink.add(f.from, f.to);
    if (way == Reach::pod || way == Reach::cluster) nic.add(f.from, f.to);
    if (way == Reach::cluster) uplink.add(pod(f.from), pod(f.to));
  }

  const double nvlink_rate = cluster_.nvlink_bandwidth * cluster_.network_efficiency;
  const double nic_rate = cluster_.nic_bandwidth * cluster_.network_efficiency;
  const double uplink_rate =
      nic_rate * static_cast<double>(cluster_.gpus_per_pod) / cluster_.pod_oversubscription;
  std::vector<Path> paths;
  paths.reserve(flows.size());
  for (const Flow& f : flows) {
    const Reach way = reach(f.from, f.to);
    if (way == Reach::self) {
      paths.push_back({});
    } else if (way == Reach::node) {
      paths.push_back({cluster_.nvlink_latency, nvlink.sharing(f.from, f.to) / nvlink_rate});
    } else {
      double per_byte = nic.sharing(f.from, f.to) / nic_rate;
      if (way == Reach::cluster) {
        per_byte = std::max(per_byte, uplink.sharing(pod(f.from), pod(f.to)) / uplink_rate);
      }
      paths.push_back({cluster_.nic_latency, per_byte});
    }
  }
  return paths;
}

std::vector<Path> Network::shift_paths(const RankAxis& axis, int offset) const {
  std::vector<Flow> flows;
  flows.reserve(static_cast<size_t>(axis.world));
  for (int rank = 0; rank < axis.world; ++rank) {
    const int other = ((axis.index(rank) + offset) % axis.size + axis.size) % axis.size;
    flows.push_back({rank, axis.at(rank, other)});
  }
  return concurrent_paths(flows);
}

std::vector<Path> Network::ring_paths(int world,
                                      const std::function<std::vector<int>(int rank)>& group_of) const {
  std::vector<int> first(static_cast<size_t>(world), -1);  // of each rank's group
  std::vector<Flow> flows(static_cast<size_t>(world));
  for (int rank = 0; rank < world; ++rank) {
    if (first[static_cast<size_t>(rank)] >= 0) continue;
    const std::vector<int> group = group_of(rank);
    for (size_t i = 0; i < group.size(); ++i) {
      first[static_cast<size_t>(group[i])] = group.front();
      flows[static_cast<size_t>(group[i])] = {group[i], group[(i + 1) % group.size()]};
    }
  }
  const std::vector<Path> hops = concurrent_paths(flows);
  std::vector<Path> slowest(hops.size());
  for (size_t rank = 0; rank < hops.size(); ++rank) {
    Path& group = slowest[static_cast<size_t>(first[rank])];
    group.latency = std::max(group.latency, hops[rank].latency);
    group.seconds_per_byte = std::max(group.seconds_per_byte, hops[rank].seconds_per_byte);
  }
  for (size_t rank = 0; rank < hops.size(); ++rank) slowest[rank] = slowest[static_cast<size_t>(first[rank])];
  return slowest;
}

}  // namespace lockstep::cluster
