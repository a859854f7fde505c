// How each transfer of a step is done: what `simulate` lists.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/json_fwd.hpp"
#include "cost/text.hpp"
#include "cost/transfer_prices.hpp"
#include "parallel/program.hpp"

namespace lockstep::sim {

struct ListedTransfer {
  cost::Transfer transfer;
  int ranks = 2;      // of a group; of a message its two ends
  int64_t times = 0;  // a step, at a rank of the stage that has it most often
  cost::Choice choice;
  double seconds = 0;  // when all groups of the axis do it and nothing else moves; of the slowest group
  // Bytes/s, as nccl-tests count: what each rank's links carry in the best algorithm, so that collectives and
  // sizes of group compare with the links. 0 where it takes no time.
  double bus_bandwidth = 0;

  double seconds_in_all() const { return static_cast<double>(times) * seconds; }
};

// Of the collectives and messages in `programs` between several ranks, those that take longest in a step
// first.
std::vector<ListedTransfer> list_transfers(const parallel::Layout& layout,
                                           const std::vector<parallel::Program>& programs,
                                           cost::TransferPrices& prices);

// A table of at most 100 columns. Says where cluster.collective_algorithm names one that there is not.
std::string transfers_text(const config::RunFile& run, const std::vector<ListedTransfer>& transfers,
                           const cost::Style& style);
Json transfers_json(const std::vector<ListedTransfer>& transfers);

}  // namespace lockstep::sim
