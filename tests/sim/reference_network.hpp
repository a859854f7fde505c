// What collectives and messages take in the plain simulator.
#pragma once

#include <algorithm>
#include <map>
#include <utility>
#include <vector>

#include "cost/op_prices.hpp"
#include "sim/reference_simulator.hpp"

namespace lockstep::tests {

class ReferenceNetwork {
  using Axis = model::Axis;

 public:
  // All references outlive this.
  ReferenceNetwork(const parallel::Layout& layout, const cost::OpPrices& prices, Communication communication)
      : mesh_(layout.mesh()), prices_(prices), communication_(communication) {}

  // Round by round.
  double collective_seconds(const model::Op& op, int rank) {
    if (is_free(op.axis)) return 0;
    const int n = mesh_.size(op.axis);
    const auto& hop = ring(op.axis, rank);
    double seconds = 0;
    const int passes = op.kind == model::OpKind::all_reduce ? 2 : 1;
    for (int round = 0; round < passes * (n - 1); ++round) {
      seconds += hop[0] + static_cast<double>(op.bytes) / n * hop[1];
    }
    return seconds;
  }

  double message_seconds(const model::Op& op, int from, int to) {
    if (is_free(Axis::pp)) return 0;
    const int p = mesh_.size(Axis::pp);
    const int shift = ((mesh_.coordinates(to).pp - mesh_.coordinates(from).pp) % p + p) % p;
    auto& paths = shifts_[shift];
    if (paths.empty()) {
      std::vector<cluster::Flow> flows;
      for (int r = 0; r < mesh_.size(); ++r) {
        parallel::Coordinates c = mesh_.coordinates(r);
        c.pp = (c.pp + shift) % p;
        flows.push_back({r, mesh_.rank(c)});
      }
      paths = prices_.network().concurrent_paths(flows);
    }
    return paths[static_cast<size_t>(from)].seconds(static_cast<double>(op.bytes));
  }

 private:
  bool is_free(Axis axis) const {
    return communication_ == Communication::none ||
           (communication_ == Communication::no_messages && axis != Axis::tp && axis != Axis::cp);
  }

  // Slowest hop of the ring through `rank`'s group while all groups of the axis go round.
  const std::vector<double>& ring(Axis axis, int rank) {
    auto& known = rings_[{static_cast<int>(axis), mesh_.group(axis, rank).front()}];
    if (!known.empty()) return known;
    std::vector<cluster::Flow> flows;
    std::vector<int> leader;
    for (int r = 0; r < mesh_.size(); ++r) {
      const auto group = mesh_.group(axis, r);
      const size_t i = static_cast<size_t>(std::find(group.begin(), group.end(), r) - group.begin());
      flows.push_back({r, group[(i + 1) % group.size()]});
      leader.push_back(group.front());
    }
    const auto paths = prices_.network().concurrent_paths(flows);
    known = {0, 0};
    for (size_t r = 0; r < paths.size(); ++r) {
      if (leader[r] != mesh_.group(axis, rank).front()) continue;
      known[0] = std::max(known[0], paths[r].latency);
      known[1] = std::max(known[1], paths[r].seconds_per_byte);
    }
    return known;
  }

  const parallel::Mesh& mesh_;
  const cost::OpPrices& prices_;
  Communication communication_;
  std::map<std::pair<int, int>, std::vector<double>> rings_;
  std::map<int, std::vector<cluster::Path>> shifts_;
};

}  // namespace lockstep::tests
