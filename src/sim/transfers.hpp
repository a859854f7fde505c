// Collectives and messages as a stage's lanes need them: what each takes, and what it costs when another goes
// on at the same rank at the same time.
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <memory>
#include <utility>
#include <vector>

#include "cost/transfer_prices.hpp"
#include "parallel/mesh.hpp"
#include "sim/per_lane.hpp"

namespace lockstep::sim {

struct TransferTimes {
  cost::Transfer transfer;
  PerLane seconds;  // alone
  PerLane waited;   // alone: of that, what the computation waits for (cost::OpPrices::waited_share)
};

// Two transfers at the same time at one rank: how many times as long as alone each takes; at least 1.
struct Sharing {
  PerLane first = 1, second = 1;
  // Whether they may pass a link both; else neither slows the other, whatever goes on.
  bool in_common = false;
};

class StageTransfers {
 public:
  // `ranks`: global rank by lane. References outlive this.
  StageTransfers(cost::TransferPrices& prices, const parallel::Mesh& mesh, int gpus_per_node,
                 std::vector<int> ranks)
      : prices_(prices), mesh_(mesh), gpus_per_node_(gpus_per_node), ranks_(std::move(ranks)) {}

  size_t lanes() const { return ranks_.size(); }
  std::shared_ptr<const TransferTimes> times(const cost::Transfer& transfer, double waited_share = 1);
  // Both live as long as this.
  const Sharing& sharing(const TransferTimes& first, const TransferTimes& second);
  // How many times as long as alone `of` takes while both others go on.
  const PerLane& pace_beside_two(const TransferTimes& of, const TransferTimes& one, const TransferTimes& two);

 private:
  // Of what links a transfer's groups move over.
  enum class Over : uint8_t { nvlink, nic, both };
  Over over(const cost::Transfer& transfer);
  Over find_over(const cost::Transfer& transfer) const;
  PerLane ratio(const cost::Transfer& of, const std::vector<cost::Transfer>& beside) const;

  cost::TransferPrices& prices_;
  const parallel::Mesh& mesh_;
  int gpus_per_node_;
  std::vector<int> ranks_;
  std::map<std::pair<model::Axis, bool>, Over> over_;  // by axis, and whether it is a message
  std::map<std::pair<cost::Transfer, double>, std::shared_ptr<TransferTimes>> times_;  // by waited share
  std::map<std::pair<const TransferTimes*, const TransferTimes*>, Sharing> sharing_;
  std::map<std::array<const TransferTimes*, 3>, PerLane> beside_two_;
};

}  // namespace lockstep::sim
