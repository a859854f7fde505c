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
  const Protocol* protocol = &protocols.front();
  double times = 1;  // an all-reduce is twice its half, but for those that have no halves
  int pieces = 1;
};

bool has_halves(std::string_view algorithm) { return algorithm != "tree" && algorithm != "halving_doubling"; }

std::span<const Protocol> protocols_of(std::string_view algorithm, bool low_latency) {
  const bool of_nccl = algorithm == "ring" || algorithm == "tree" || algorithm == "hierarchical";
  return std::span(protocols).first(low_latency && of_nccl ? protocols.size() : 1);
}

}  // namespace

class TransferPrices::Engine {
 public:
  Engine(const config::RunFile& run, const parallel::Mesh& mesh)
      : algorithm_(run.cluster.collective_algorithm),
        low_latency_(run.cluster.low_latency_protocols),
        overhead_(run.cluster.message_overhead),
        mesh_(mesh),
        fabric_(run.cluster, mesh.size(), run.simulate.slow_links, static_cast<uint64_t>(run.simulate.seed)),
        solver_(run.cluster, mesh, fabric_),
        well_fabric_(run.cluster, mesh.size(), {}, static_cast<uint64_t>(run.simulate.seed)),
        well_solver_(run.cluster, mesh, well_fabric_),
        choosing_(run.simulate.slow_links.empty() ? solver_ : well_solver_),
        all_reduce_times_(run.cluster.all_reduce_times),
        all_gather_times_(run.cluster.all_gather_times),
        reduce_scatter_times_(run.cluster.reduce_scatter_times),
        message_times_(run.cluster.message_times) {}

  struct Price {
    Way way;  // of the model of links
    Choice choice;
    RankSeconds seconds;
  };
  std::mutex mutex;  // of whoever calls these
  const Price& price(const Transfer& transfer);
  const RankSeconds& beside(const Transfer& transfer, const Transfer& other);

 private:
  int ranks(const Transfer& t) const { return t.kind == OpKind::send ? 2 : mesh_.size(t.axis); }
  bool moves(const Transfer& t) const;
  std::vector<std::string> algorithms(const Transfer& t, bool& as_configured);
  bool can_be_hierarchical(model::Axis axis);
  Way fastest(const Transfer& t, bool& as_configured);
  Way with_pieces(const Way& way, const Paces& paces, double bytes) const;
  double seconds(const Way& way, const Pace& pace, double bytes) const;
  double slowest(const Way& way, const Paces& paces, double bytes) const;
  RankSeconds by_rank(const Way& way, const Paces& paces, double bytes) const;
  const MeasuredTimes& measured(OpKind kind) const;
  void replace_by_measured(const Transfer& t, Price& price) const;

  config::CollectiveAlgorithm algorithm_;
  bool low_latency_;
  double overhead_;
  parallel::Mesh mesh_;
  cluster::Fabric fabric_;
  PaceSolver solver_;
  // Nobody tells NCCL that a link has become slow: algorithms are chosen for a network that is well.
  cluster::Fabric well_fabric_;
  PaceSolver well_solver_;
  PaceSolver& choosing_;
  MeasuredTimes all_reduce_times_, all_gather_times_, reduce_scatter_times_, message_times_;
  std::map<Transfer, Price> prices_;
  std::map<std::pair<Transfer, Transfer>, RankSeconds> beside_;
};

double TransferPrices::Engine::seconds(const Way& way, const Pace& pace, double bytes) const {
  const bool tree = way.movement.algorithm == "tree";
  const double more = way.pieces - 1;
  const double rounds = (more + pace.fill) / way.pieces;
  const double once = solver_.latency(pace.ways, *way.protocol, tree) +
                      more * solver_.latency(pace.piece, *way.protocol, tree) +
                      rounds * pace.seconds_per_byte * bytes / way.protocol->bandwidth;
  return pace == Pace{} ? 0 : way.times * once + overhead_;
}

double TransferPrices::Engine::slowest(const Way& way, const Paces& paces, double bytes) const {
  double longest = 0;
  for (const Pace& pace : paces.kinds) longest = std::max(longest, seconds(way, pace, bytes));
  return longest;
}

// T(pieces) = (pieces - 1) latency + (1 + (fill - 1) / pieces) transfer has its least where both parts that
// depend on them are equal. Of what is best for one kind of group, what is best for the slowest.
Way TransferPrices::Engine::with_pieces(const Way& way, const Paces& paces, double bytes) const {
  constexpr double most = 4096;
  Way best = way;
  double least = slowest(way, paces, bytes);
  for (const Pace& pace : paces.kinds) {
    const double latency = solver_.latency(pace.piece, *way.protocol, true);
    const double transfer = pace.seconds_per_byte * bytes / way.protocol->bandwidth;
    const double pieces = latency > 0 ? std::sqrt((pace.fill - 1) * transfer / latency) : most;
    Way candidate = way;
    candidate.pieces = static_cast<int>(std::clamp(pieces, 1.0, most));
    for (int more = 0; more < 2; ++more, ++candidate.pieces) {
      const double takes = slowest(candidate, paces, bytes);
      if (takes >= least) continue;
      best = candidate;
      least = takes;
    }
  }
  return best;
}

bool TransferPrices::Engine::can_be_hierarchical(model::Axis axis) {
  const AxisGroups& groups = solver_.groups(axis);
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

Way TransferPrices::Engine::fastest(const Transfer& t, bool& as_configured) {
  if (t.kind == OpKind::send) return {{model::Axis::pp, "message", t.stage_shift}, &protocols.front(), 1, 1};
  const double bytes = static_cast<double>(t.bytes);
  Way best;
  double least = 0;
  for (const std::string& algorithm : algorithms(t, as_configured)) {
    const Movement movement{t.axis, algorithm, 0};
    const Paces& paces = choosing_.paces(movement);
    for (const Protocol& protocol : protocols_of(algorithm, low_latency_)) {
      const double times = t.kind == OpKind::all_reduce && has_halves(algorithm) ? 2 : 1;
      Way way{movement, &protocol, times, 1};
      if (algorithm == "tree") way = with_pieces(way, paces, bytes);
      const double takes = slowest(way, paces, bytes);
      if (least == 0 || takes < least) {
        best = way;
        least = takes;
      }
    }
  }
  return best;
}

RankSeconds TransferPrices::Engine::by_rank(const Way& way, const Paces& paces, double bytes) const {
  std::vector<double> kinds;
  for (const Pace& pace : paces.kinds) kinds.push_back(seconds(way, pace, bytes));
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
  price.choice = {"measured", "", 1, true};
}

bool TransferPrices::Engine::moves(const Transfer& t) const {
  if (t.kind != OpKind::send) {
    collective_of(t.kind);
    return mesh_.size(t.axis) > 1;
  }
  return t.stage_shift % mesh_.size(model::Axis::pp) != 0;
}

const TransferPrices::Engine::Price& TransferPrices::Engine::price(const Transfer& t) {
  const auto [known, is_new] = prices_.try_emplace(t);
  Price& price = known->second;
  if (!is_new) return price;
  if (!moves(t)) {
    price.seconds = RankSeconds::same_for_all(static_cast<size_t>(mesh_.size()), 0);
    return price;
  }
  price.way = fastest(t, price.choice.as_configured);
  price.choice.algorithm = price.way.movement.algorithm;
  price.choice.protocol = price.way.protocol->name;
  price.choice.pieces = price.way.pieces;
  price.seconds = by_rank(price.way, solver_.paces(price.way.movement), static_cast<double>(t.bytes));
  replace_by_measured(t, price);
  return price;
}

const RankSeconds& TransferPrices::Engine::beside(const Transfer& t, const Transfer& other) {
  const Price &alone = price(t), &beside = price(other);
  if (!moves(t) || !moves(other)) return alone.seconds;
  const auto [known, is_new] = beside_.try_emplace({t, other});
  RankSeconds& out = known->second;
  if (!is_new) return out;
  const double bytes = static_cast<double>(t.bytes);
  const Paces& paces = solver_.paces_beside(alone.way.movement, beside.way.movement);
  out = by_rank(alone.way, paces, bytes);
  if (measured(t.kind).empty()) return out;
  const RankSeconds model = by_rank(alone.way, solver_.paces(alone.way.movement), bytes);
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
const RankSeconds& TransferPrices::seconds_beside(const Transfer& transfer, const Transfer& other) {
  const std::lock_guard held(engine_->mutex);
  return engine_->beside(transfer, other);
}
const Choice& TransferPrices::choice(const Transfer& transfer) {
  const std::lock_guard held(engine_->mutex);
  return engine_->price(transfer).choice;
}

}  // namespace lockstep::cost
