// A cluster with round figures, and prices on it.
#pragma once

#include "cost/transfer_prices.hpp"
#include "parallel/sample_run.hpp"

namespace lockstep::cost::test {

// Nodes of 8, racks of 2 nodes, pods of 8 racks with 1:7 above; Simple alone, no overheads.
inline config::ClusterConfig round_cluster() {
  config::ClusterConfig c;
  c.gpus_per_node = 8;
  c.gpus_per_rack = 16;
  c.gpus_per_pod = 128;
  c.nvlink_bandwidth = 400e9;
  c.nvlink_latency = 1e-6;
  c.nic_bandwidth = 50e9;
  c.nic_latency = 5e-6;
  c.network_efficiency = 1;
  c.pod_oversubscription = 7;
  c.low_latency_protocols = false;
  return c;
}

inline config::RunFile run_on(const config::ClusterConfig& cluster, int64_t tp, int64_t pp, int64_t dp) {
  config::RunFile run = tests::sample_run(tp, pp, dp, 1, 1);
  run.cluster = cluster;
  return run;
}

inline TransferPrices prices_of(const config::RunFile& run) {
  return TransferPrices(run, parallel::Mesh(run));
}

inline Transfer collective_on(model::Axis axis, model::OpKind kind, int64_t bytes) {
  return {kind, axis, bytes, 0};
}

}  // namespace lockstep::cost::test
