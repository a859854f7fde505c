// Collectives and messages, flow by flow: every step of an algorithm's step list that goes the same way in
// one round is a flow, and starts as soon as its sender has what it sends.
//
// - A flow first takes the latency of its hop (by the cost model's documentation: nvlink_latency, or
//   nic_latency and twice switch_latency a layer), then its bytes pass the links.
// - It needs every chunk that its sender has got in earlier rounds to be there. Nobody waits for a round.
// - Bytes between the same two ranks follow one another in the order of rounds, of each channel of a ring, of
//   each tree. The latency of a ring's next chunk passes meanwhile, that of a tree's next piece after them.
// - In halving and doubling partners exchange: both first end the round before.
// - message_overhead passes once, before all.
// Which algorithm and number of pieces is the cost model's choice; what they take is not.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <string>
#include <tuple>
#include <vector>

#include "collective/steps.hpp"
#include "cost/transfer_prices.hpp"
#include "parallel/mesh.hpp"
#include "sim/fluid_network.hpp"

namespace lockstep::tests {

class FluidCollectives {
 public:
  using Happens = std::function<void()>;

  // All outlive this.
  FluidCollectives(const config::RunFile& run, const parallel::Mesh& mesh, const cluster::Fabric& fabric,
                   FluidNetwork& network)
      : cluster_(run.cluster), mesh_(mesh), fabric_(fabric), network_(network), choices_(run, mesh) {}

  // Starts now, at all ranks of the group of `member`; `ended` when the last of them has everything.
  void start(const cost::Transfer& collective, int member, Happens ended);
  void send(int from, int to, double bytes, Happens arrived);

 private:
  struct Flow {
    int from = 0, to = 0;  // places in the group
    double share = 0;      // of the buffer
    int needs = 0;         // flows that have to arrive before
    int before = -1;       // whose bytes go first
    int after = -1;
    std::vector<int> next;  // flows that need this one
  };
  using Plan = std::vector<Flow>;
  // One collective of one group.
  struct Run {
    std::shared_ptr<const Plan> plan;
    std::vector<int> ranks;
    std::string algorithm;
    double bytes = 0;
    std::vector<int> needs;
    std::vector<bool> latency_passed, gone;
    size_t left = 0;
    Happens ended;
  };
  using Key = std::tuple<model::OpKind, std::string, int, int, int>;

  static Plan plan_of(const collective::StepList& list, int streams);
  std::shared_ptr<const Plan> plan(const Key& key);
  double latency(int from, int to) const;
  int ranks_per_node(const std::vector<int>& ranks) const;
  void begin(const std::shared_ptr<Run>& run, int flow);
  void try_bytes(const std::shared_ptr<Run>& run, int flow);
  void end(const std::shared_ptr<Run>& run, int flow);

  const config::ClusterConfig& cluster_;
  const parallel::Mesh& mesh_;
  const cluster::Fabric& fabric_;
  FluidNetwork& network_;
  cost::TransferPrices choices_;
  std::map<Key, std::shared_ptr<const Plan>> plans_;
};

// Seconds by rank until the rank's group is done, when all groups of the axis start at once.
std::vector<double> fluid_seconds(const config::RunFile& run, const parallel::Mesh& mesh,
                                  const cost::Transfer& transfer);

}  // namespace lockstep::tests
