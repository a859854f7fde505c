// What collectives and messages cost on the modelled cluster: planner and simulator take every price here.
//
// A price is of an algorithm (collective/steps.hpp): its rounds follow one another, and a round takes the
// latency of its hops and then the time that its bytes need when each flow has an equal part of its fullest
// link and all groups of the axis are in that round at once. Two refinements:
//  - In a ring nobody waits for others than its neighbours, so that what a chunk passes adds up on its way
//    around: a round's latency is the mean of the ring's hops. With several ranks in a node most of them are
//    NVLink's. (NCCL's own model counts alike: nInterSteps in src/graph/tuning.cc.)
//  - In a tree pieces follow one another; the rounds in which it fills and drains are priced as if all its
//    edges were busy. A group cuts into as many pieces as are best for it.
// message_overhead comes once on top.
//
// Collectives of gradients and parameters have software.dp_network_efficiency where it is given. A price is
// of the whole transfer, whatever hides it: see OpPrices::waited_share.
//
// With low_latency_protocols ring and tree are NCCL's, and what a price adds to links and hops is its tuning
// model (cost/protocols.hpp): what each protocol reaches of the bandwidth and costs in latency. A tree's
// pieces are then part of NCCL's correction by size.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "config/run_file.hpp"
#include "cost/rank_seconds.hpp"
#include "model/op.hpp"
#include "parallel/mesh.hpp"

namespace lockstep::cost {

struct Transfer {
  // A collective along `axis`, or a send on axis pp. A receive is its sender's send.
  model::OpKind kind = model::OpKind::send;
  model::Axis axis = model::Axis::pp;
  int64_t bytes = 0;    // as in model::Op: of a collective the whole tensor
  int stage_shift = 0;  // of a send: to the stage so many further, cyclic; may be negative

  bool operator==(const Transfer&) const = default;
  auto operator<=>(const Transfer&) const = default;
};

// How a transfer is done.
struct Choice {
  // "ring", "tree", "halving_doubling", "hierarchical", "direct"; "message"; "measured"; "none" on an axis
  // of one rank.
  std::string algorithm = "none";
  std::string protocol;  // of the slowest group: NCCL's "Simple", "LL128", "LL"; empty: none or measured
  int pieces = 1;        // of the slowest group's tree, priced from the links alone
  bool over_nvlink = false, over_nic = false;  // what its groups' data passes
  // False when cluster.collective_algorithm names one that this collective, or this group, does not have: the
  // ring is taken.
  bool as_configured = true;
};

// With cluster.collective_algorithm = "auto" the algorithm is the faster of ring and tree for an all-reduce,
// else the ring: one for all groups of an axis, by the slowest, as they share links. A named algorithm is
// used where there is one for the collective and the group's size ("hierarchical" needs as many ranks of the
// group, more than one, in each of several nodes; "direct" is priced up to 256 ranks), else the ring. With
// low_latency_protocols each group goes in the fastest of NCCL's protocols.
//
// A measured table (cluster.all_reduce_times, ...) replaces all of that for its kind: see
// cost/measured_times.hpp. Beside another transfer a measured time grows as the model's does.
//
// Several threads may ask at once.
class TransferPrices {
 public:
  // `run` has passed config's rules, and all its ranks are the mesh's. ECMP's hash is seeded by
  // simulate.seed. `run` and `mesh` are not kept.
  TransferPrices(const config::RunFile& run, const parallel::Mesh& mesh);
  ~TransferPrices();
  TransferPrices(TransferPrices&&) noexcept;
  TransferPrices& operator=(TransferPrices&&) noexcept;

  // Seconds by global rank: of the collective of the group that the rank is in (equal for the whole group),
  // or of the message that it sends, when every group of the axis (every rank) does the same at once and
  // nothing else moves. 0 for a rank that is alone on the axis, and for a message to its own stage. The
  // reference stays valid as long as this object. Throws invalid_argument for a kind that is no transfer.
  const RankSeconds& seconds(const Transfer& transfer);

  // The same while all groups of the axes of `others` go on with them beside: a flow counts on an equal part
  // of each link that the flows of all pass. Each in the algorithm that it has alone; of an algorithm with
  // several phases the others are, on each link, in the one with most flows there.
  const RankSeconds& seconds_beside(const Transfer& transfer, const std::vector<Transfer>& others);

  const Choice& choice(const Transfer& transfer);

 private:
  class Engine;
  std::unique_ptr<Engine> engine_;
};

}  // namespace lockstep::cost
