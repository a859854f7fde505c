// What collectives and messages take in the plain simulator, alone and beside each other.
#pragma once

#include <algorithm>
#include <vector>

#include "cost/transfer_prices.hpp"
#include "sim/reference_simulator.hpp"

namespace lockstep::tests {

class ReferenceNetwork {
  using Axis = model::Axis;

 public:
  ReferenceNetwork(const config::RunFile& run, const parallel::Mesh& mesh, Communication communication)
      : prices_(run, mesh), communication_(communication) {}

  double seconds(const cost::Transfer& transfer, int rank) {
    return is_free(transfer) ? 0 : prices_.seconds(transfer)[static_cast<size_t>(rank)];
  }
  // How many times as long as alone `what` takes beside all of `others`.
  double slowing(const cost::Transfer& what, const std::vector<cost::Transfer>& others, int rank) {
    const double alone = seconds(what, rank);
    if (communication_ != Communication::all || alone == 0) return 1;
    return std::max(1.0, prices_.seconds_beside(what, others)[static_cast<size_t>(rank)] / alone);
  }

 private:
  bool is_free(const cost::Transfer& transfer) const {
    const bool blocks = transfer.axis == Axis::tp || transfer.axis == Axis::cp;
    return communication_ == Communication::none || (communication_ == Communication::no_messages && !blocks);
  }

  cost::TransferPrices prices_;
  Communication communication_;
};

}  // namespace lockstep::tests
