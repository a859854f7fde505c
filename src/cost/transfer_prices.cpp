#include "cost/transfer_prices.hpp"

#include <algorithm>
#include <cmath>
#include <mutex>
#include <span>
#include <stdexcept>
#include <string_view>
#include <utility>

#include "collective/shapes.hpp"
#include "config/names.hpp"
#include "cost/measured_times.hpp"
#include "cost/paces.hpp"

namespace lockstep::cost {

namespace {

using collective::Collective;
using model::OpKind;

constexpr int most_direct_ranks = 256;

Collective collective_of(OpKind kind) {
  switch (kind) {
    case OpKind::all_reduce:
      return Collective::all_reduce;
    case OpKind::all_gather:
      return Collective::all_gather;
    case OpKind::reduce_scatter:
      return Collective::reduce_scatter;
    default:
      throw std::invalid_argument("only collectives and sends are transfers");
  }
}

// One way to do a transfer.
struct Way {
  Movement movement;
  // Each group goes in the fastest: they move the same bytes over the same links.
  std::span<const Protocol> protocols = std::span(&plain_protocol, 1);
  double times = 1;  // an all-reduce is twice its half, but for those that have no halves
  // Of NCCL's collectives:
  bool all_reduce = false;
  int nodes = 1;             // of the group that lies on most
  double plateau_bytes = 0;  // see ring_plateau
  double bus_bytes = 0;      // that pass each rank's links for a byte of the op; of a half

  bool is_tree() const { return movement.algorithm == "tree"; }
};

bool has_halves(std::string_view algorithm) { return algorithm != "tree" && algorithm != "halving_doubling"; }

// NCCL has no hierarchical one; whoever composes it of NCCL's rings has their protocols.
std::span<const Protocol> protocols_of(std::string_view algorithm, bool nccl) {
  const bool of_nccl = algorithm == "ring" || algorithm == "tree" || algorithm == "hierarchical";
  return nccl && of_nccl ? std::span<const Protocol>(nccl_protocols) : std::span(&plain_protocol, 1);
}

// A network and the paces on it.
struct Links {
  Links(const config::RunFile& run, const config::ClusterConfig& cluster, const parallel::Mesh& mesh)
      : fabric(cluster, mesh.size(), run.simulate.slow_links, static_cast<uint64_t>(run.simulate.seed)),
        solver(cluster, mesh, fabric),
        well_fabric(cluster, mesh.size(), {}, static_cast<uint64_t>(run.simulate.seed)),
        well_solver(cluster, mesh, well_fabric),
        choosing(run.simulate.slow_links.empty() ? solver : well_solver) {}

  cluster::Fabric fabric;
  PaceSolver solver;
  // Nobody tells NCCL that a link has become slow: ring or tree is chosen for a network that is well. A
  // group's protocol is the fastest as things are: a faster network could otherwise make it slower.
  cluster::Fabric well_fabric;
  PaceSolver well_solver;
  PaceSolver& choosing;
};

}  // namespace

class TransferPrices::Engine {
 public:
  Engine(const config::RunFile& run, const parallel::Mesh& mesh)
      : algorithm_(run.cluster.collective_algorithm),
        nccl_(run.cluster.low_latency_protocols),
        overhead_(run.cluster.message_overhead),
        ll_bandwidth_(run.cluster.low_latency_bandwidth),
        mesh_(mesh),
        links_(run, run.cluster, mesh),
        all_reduce_times_(run.cluster.all_reduce_times),
        all_gather_times_(run.cluster.all_gather_times),
        reduce_scatter_times_(run.cluster.reduce_scatter_times),
        message_times_(run.cluster.message_times) {
    if (run.software.dp_network_efficiency == 0) return;
    config::ClusterConfig cluster = run.cluster;
    if (cluster.nvlink_efficiency == 0) cluster.nvlink_efficiency = cluster.network_efficiency;
    cluster.network_efficiency = run.software.dp_network_efficiency;
    dp_links_ = std::make_unique<Links>(run, cluster, mesh);
  }

  struct Price {
    Way way;  // of the model of links
    Choice choice;
    RankSeconds seconds;
  };
  std::mutex mutex;  // of whoever calls these
  const Price& price(const Transfer& transfer);
  const RankSeconds& beside(const Transfer& transfer, std::vector<Transfer> others);

 private:
  int ranks(const Transfer& t) const { return t.kind == OpKind::send ? 2 : mesh_.size(t.axis); }
  bool moves(const Transfer& t) const;
  std::vector<std::string> algorithms(const Transfer& t, bool& as_configured);
  bool can_be_hierarchical(model::Axis axis);
  Way way_of(const Transfer& t, const Movement& movement);
  Way fastest(const Transfer& t, bool& as_configured);
  int nodes(model::Axis axis);
  double latency(const Way& way, const Protocol& protocol, const Pace& pace, double bytes, int pieces) const;
  double seconds_per_byte(const Way& way, const Protocol& protocol, const Pace& pace, double bytes,
                          int pieces) const;
  int good_pieces(const Pace& pace, double bytes) const;
  struct Fastest {
    double seconds = 0;
    std::string_view protocol;
    int pieces = 1;
  };
  Fastest fastest_of(const Way& way, const Pace& pace, double bytes) const;
  double slowest(const Way& way, const Paces& paces, double bytes) const;
  RankSeconds by_rank(const Way& way, const Paces& paces, double bytes) const;
  const MeasuredTimes& measured(OpKind kind) const;
  void replace_by_measured(const Transfer& t, Price& price) const;

  config::CollectiveAlgorithm algorithm_;
  // Of those axes whose collectives carry gradients and parameters: software.dp_network_efficiency.
  Links& links(model::Axis axis) {
    const bool of_gradients =
        axis == model::Axis::dp || axis == model::Axis::dp_cp || axis == model::Axis::pp_ends;
    return of_gradients && dp_links_ != nullptr ? *dp_links_ : links_;
  }

  bool nccl_;
  double overhead_, ll_bandwidth_;
  parallel::Mesh mesh_;
  Links links_;
  std::unique_ptr<Links> dp_links_;  // null: the same
  MeasuredTimes all_reduce_times_, all_gather_times_, reduce_scatter_times_, message_times_;
  std::map<model::Axis, int> nodes_;
  std::map<Transfer, Price> prices_;
  std::map<std::pair<Transfer, std::vector<Transfer>>, RankSeconds> beside_;
};

double TransferPrices::Engine::latency(const Way& way, const Protocol& protocol, const Pace& pace,
                                       double bytes, int pieces) const {
  const bool tree = way.is_tree();
  const Protocol::Latencies &of = tree ? protocol.tree : protocol.ring, &simple = plain_protocol.ring;
  const double fixed = overhead_ * of.base / simple.base;
  const double hops = links_.solver.latency(pace.ways, protocol, tree) +
                      (pieces - 1) * links_.solver.latency(pace.piece, protocol, tree);
  const bool plateau = &protocol == &nccl_protocols.front() && way.movement.algorithm == "ring" &&
                       way.all_reduce && pace.ways.nic > 0 && bytes >= way.plateau_bytes;
  return (fixed + way.times * hops) * (plateau ? ring_plateau : 1);
}

double TransferPrices::Engine::seconds_per_byte(const Way& way, const Protocol& protocol, const Pace& pace,
                                                double bytes, int pieces) const {
  const bool tree = way.is_tree();
  if (&protocol == &plain_protocol) return pace.seconds_per_byte * (pieces - 1 + pace.fill) / pieces;
  const bool leaves = pace.ways.nic > 0;
  double seconds = pace.seconds_per_byte / protocol.share(tree, leaves);
  if (protocol.name == "LL" && way.bus_bytes > 0) {
    const double most = !leaves         ? ll_bandwidth_
                        : way.nodes > 2 ? ll_bandwidth_of_nodes
                                        : ll_bandwidth_of_two_nodes;
    if (most > 0) seconds = std::max(seconds, way.bus_bytes / most);
  }
  return tree ? seconds / tree_correction(protocol, bytes) : seconds;
}

// T(pieces) = (pieces - 1) latency + (1 + (fill - 1) / pieces) transfer has its least where both parts that
// depend on them are equal: the whole number below; the best is that or the next.
int TransferPrices::Engine::good_pieces(const Pace& pace, double bytes) const {
  constexpr double most = 4096;
  const double latency = links_.solver.latency(pace.piece, plain_protocol, true);
  const double transfer = pace.seconds_per_byte * bytes;
  const double pieces = latency > 0 ? std::sqrt((pace.fill - 1) * transfer / latency) : most;
  return static_cast<int>(std::clamp(pieces, 1.0, most));
}

TransferPrices::Engine::Fastest TransferPrices::Engine::fastest_of(const Way& way, const Pace& pace,
                                                                   double bytes) const {
  Fastest fastest;
  if (pace == Pace{}) return fastest;
  const bool in_pieces = way.is_tree() && !nccl_;
  const int least = in_pieces ? good_pieces(pace, bytes) : 1;
  for (const Protocol& protocol : way.protocols) {
    for (int pieces = least; pieces <= (in_pieces ? least + 1 : least); ++pieces) {
      const double seconds = latency(way, protocol, pace, bytes, pieces) +
                             way.times * seconds_per_byte(way, protocol, pace, bytes, pieces) * bytes;
      if (fastest.protocol.empty() || seconds < fastest.seconds) fastest = {seconds, protocol.name, pieces};
    }
  }
  return fastest;
}

// Of the group that lies on most nodes.
int TransferPrices::Engine::nodes(model::Axis axis) {
  const auto [known, is_new] = nodes_.try_emplace(axis, 1);
  if (!is_new) return known->second;
  const AxisGroups& groups = links_.solver.groups(axis);
  for (int g = 0; g < groups.count(); ++g) {
    int count = 0, last = -1;
    for (const int rank : groups.members(g)) {
      count += links_.fabric.node(rank) != last ? 1 : 0;
      last = links_.fabric.node(rank);
    }
    known->second = std::max(known->second, count);
  }
  return known->second;
}

double TransferPrices::Engine::slowest(const Way& way, const Paces& paces, double bytes) const {
  double longest = 0;
  for (const Pace& pace : paces.kinds) longest = std::max(longest, fastest_of(way, pace, bytes).seconds);
  return longest;
}

bool TransferPrices::Engine::can_be_hierarchical(model::Axis axis) {
  const AxisGroups& groups = links_.solver.groups(axis);
  for (int g = 0; g < groups.count(); ++g) {
    const int n = static_cast<int>(groups.members(g).size()), per_node = groups.ranks_per_node(g);
    if (n > 1 && (per_node == 1 || per_node == n)) return false;
  }
  return true;
}

std::vector<std::string> TransferPrices::Engine::algorithms(const Transfer& t, bool& as_configured) {
  const Collective collective = collective_of(t.kind);
  if (algorithm_ == config::CollectiveAlgorithm::automatic) {
    if (collective == Collective::all_reduce) return {"ring", "tree"};
    return {"ring"};
  }
  const std::string name = config::to_string(algorithm_);
  const int n = mesh_.size(t.axis);
  as_configured =
      name == "hierarchical" ? can_be_hierarchical(t.axis) : collective::exists(collective, name, n, 1);
  if (name == "direct" && n > most_direct_ranks) as_configured = false;
  return {as_configured ? name : "ring"};
}

Way TransferPrices::Engine::way_of(const Transfer& t, const Movement& movement) {
  Way way{movement, protocols_of(movement.algorithm, nccl_)};
  const bool all_reduce = t.kind == OpKind::all_reduce;
  const double n = mesh_.size(t.axis);
  way.times = all_reduce && has_halves(movement.algorithm) ? 2 : 1;
  way.all_reduce = all_reduce;
  way.nodes = nodes(t.axis);
  way.plateau_bytes = plateau_bytes * channels_per_gpu * std::ceil(n / way.nodes) * n;
  if (movement.algorithm == "ring") way.bus_bytes = (n - 1) / n;
  if (way.is_tree()) way.bus_bytes = 2;
  return way;
}

Way TransferPrices::Engine::fastest(const Transfer& t, bool& as_configured) {
  if (t.kind == OpKind::send) return {{model::Axis::pp, "message", t.stage_shift}};
  const double bytes = static_cast<double>(t.bytes);
  Way best;
  double least = 0;
  for (const std::string& algorithm : algorithms(t, as_configured)) {
    const Movement movement{t.axis, algorithm, 0};
    const Paces& paces = links(t.axis).choosing.paces(movement);
    const Way way = way_of(t, movement);
    const double takes = slowest(way, paces, bytes);
    if (least == 0 || takes < least) {
      best = way;
      least = takes;
    }
  }
  return best;
}

RankSeconds TransferPrices::Engine::by_rank(const Way& way, const Paces& paces, double bytes) const {
  std::vector<double> kinds;
  for (const Pace& pace : paces.kinds) kinds.push_back(fastest_of(way, pace, bytes).seconds);
  return {static_cast<size_t>(mesh_.size()), std::move(kinds), paces.kind_of};
}

const MeasuredTimes& TransferPrices::Engine::measured(OpKind kind) const {
  switch (kind) {
    case OpKind::all_reduce:
      return all_reduce_times_;
    case OpKind::all_gather:
      return all_gather_times_;
    case OpKind::reduce_scatter:
      return reduce_scatter_times_;
    default:
      return message_times_;
  }
}

void TransferPrices::Engine::replace_by_measured(const Transfer& t, Price& price) const {
  if (measured(t.kind).empty()) return;
  const double seconds = measured(t.kind).seconds(ranks(t), static_cast<double>(t.bytes));
  for (double& kind : price.seconds.kinds()) {
    if (kind > 0) kind = seconds;
  }
  price.choice.algorithm = "measured";
  price.choice.protocol.clear();
  price.choice.pieces = 1;
  price.choice.as_configured = true;
}

bool TransferPrices::Engine::moves(const Transfer& t) const {
  if (t.kind != OpKind::send) {
    collective_of(t.kind);
    return mesh_.size(t.axis) > 1;
  }
  return t.stage_shift % mesh_.size(model::Axis::pp) != 0;
}

const TransferPrices::Engine::Price& TransferPrices::Engine::price(const Transfer& t) {
  const bool really = moves(t);  // throws, before anything is kept
  const auto [known, is_new] = prices_.try_emplace(t);
  Price& price = known->second;
  if (!is_new) return price;
  if (!really) {
    price.seconds = RankSeconds::same_for_all(static_cast<size_t>(mesh_.size()), 0);
    return price;
  }
  price.way = fastest(t, price.choice.as_configured);
  price.choice.algorithm = price.way.movement.algorithm;
  const Paces& paces = links(t.axis).solver.paces(price.way.movement);
  Fastest slowest_group;
  for (const Pace& pace : paces.kinds) {
    const Fastest of_group = fastest_of(price.way, pace, static_cast<double>(t.bytes));
    if (of_group.seconds >= slowest_group.seconds) slowest_group = of_group;
    price.choice.over_nvlink = price.choice.over_nvlink || pace.ways.nvlink > 0;
    price.choice.over_nic = price.choice.over_nic || pace.ways.nic > 0;
  }
  price.choice.protocol = slowest_group.protocol;
  price.choice.pieces = slowest_group.pieces;
  price.seconds = by_rank(price.way, paces, static_cast<double>(t.bytes));
  replace_by_measured(t, price);
  return price;
}

const RankSeconds& TransferPrices::Engine::beside(const Transfer& t, std::vector<Transfer> others) {
  const Price& alone = price(t);
  std::erase_if(others, [this](const Transfer& other) { return !moves(other); });
  if (!moves(t) || others.empty()) return alone.seconds;
  std::sort(others.begin(), others.end());
  const auto [known, is_new] = beside_.try_emplace({t, others});
  RankSeconds& out = known->second;
  if (!is_new) return out;
  const double bytes = static_cast<double>(t.bytes);
  std::vector<Movement> movements;
  for (const Transfer& other : others) movements.push_back(price(other).way.movement);
  std::sort(movements.begin(), movements.end());
  const Paces& paces = links(t.axis).solver.paces_beside(alone.way.movement, movements);
  out = by_rank(alone.way, paces, bytes);
  if (measured(t.kind).empty()) return out;
  const RankSeconds model = by_rank(alone.way, links(t.axis).solver.paces(alone.way.movement), bytes);
  std::vector<double> scaled = out.by_rank();
  for (size_t r = 0; r < scaled.size(); ++r) {
    if (model[r] > 0) scaled[r] = alone.seconds[r] * (scaled[r] / model[r]);
  }
  out = RankSeconds::of_each(std::move(scaled));
  return out;
}

TransferPrices::TransferPrices(const config::RunFile& run, const parallel::Mesh& mesh)
    : engine_(std::make_unique<Engine>(run, mesh)) {}
TransferPrices::~TransferPrices() = default;
TransferPrices::TransferPrices(TransferPrices&&) noexcept = default;
TransferPrices& TransferPrices::operator=(TransferPrices&&) noexcept = default;

const RankSeconds& TransferPrices::seconds(const Transfer& transfer) {
  const std::lock_guard held(engine_->mutex);
  return engine_->price(transfer).seconds;
}
const RankSeconds& TransferPrices::seconds_beside(const Transfer& transfer,
                                                  const std::vector<Transfer>& others) {
  const std::lock_guard held(engine_->mutex);
  return engine_->beside(transfer, others);
}
const Choice& TransferPrices::choice(const Transfer& transfer) {
  const std::lock_guard held(engine_->mutex);
  return engine_->price(transfer).choice;
}

}  // namespace lockstep::cost
