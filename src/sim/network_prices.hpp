// Prices of a layout's transfers, kept so that several steps solve its network once.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "cost/transfer_prices.hpp"
#include "parallel/layout.hpp"

namespace lockstep::sim {

class NetworkPrices {
 public:
  // What stands in the layout's run file as `simulate` is here in place of that. `layout` is not kept.
  NetworkPrices(const parallel::Layout& layout, const config::SimulateConfig& simulate)
      : slow_links_(simulate.slow_links),
        seed_(simulate.seed),
        prices_(with(layout.run(), simulate), layout.mesh()) {}

  // Whether they are those of the same layout with such links and such a seed of hashes.
  bool fit(const config::SimulateConfig& simulate) const {
    return simulate.slow_links == slow_links_ && simulate.seed == seed_;
  }
  cost::TransferPrices& prices() { return prices_; }

 private:
  static config::RunFile with(config::RunFile run, const config::SimulateConfig& simulate) {
    run.simulate.slow_links = simulate.slow_links;
    run.simulate.seed = simulate.seed;
    return run;
  }

  std::vector<config::SlowRank> slow_links_;
  int64_t seed_;
  cost::TransferPrices prices_;
};

// The given one where it fits, or one made now.
inline std::shared_ptr<NetworkPrices> network_for(const parallel::Layout& layout,
                                                  const config::SimulateConfig& simulate,
                                                  const std::shared_ptr<NetworkPrices>& given) {
  if (given != nullptr && given->fit(simulate)) return given;
  return std::make_shared<NetworkPrices>(layout, simulate);
}

}  // namespace lockstep::sim
