#include "cost/paces.hpp"

#include <algorithm>
#include <limits>
#include <span>

#include "collective/shapes.hpp"

namespace lockstep::cost {

namespace {

using collective::Collective;

Hops& operator+=(Hops& a, const Hops& b) {
  a.nvlink += b.nvlink;
  a.nic += b.nic;
  a.layers += b.layers;
  return a;
}

Hops operator*(double times, const Hops& h) { return {times * h.nvlink, times * h.nic, times * h.layers}; }

// The few kinds among many paces: groups that are alike mostly follow one another or take turns.
int kind_of(std::vector<Pace>& kinds, const Pace& pace) {
  constexpr size_t remembered = 8;
  const size_t oldest = kinds.size() > remembered ? kinds.size() - remembered : 0;
  for (size_t k = kinds.size(); k > oldest; --k) {
    if (kinds[k - 1] == pace) return static_cast<int>(k - 1);
  }
  kinds.push_back(pace);
  return static_cast<int>(kinds.size() - 1);
}

}  // namespace

// What a group's flows have in one phase.
class PaceSolver::Tally {
 public:
  void add(const cluster::Way& way, int weight, double rate) {
    slowest_rate = std::min(slowest_rate, rate);
    flows += weight;
    nvlink += way.nvlink ? weight : 0;
    nic += way.nic ? weight : 0;
    layers += way.layers * weight;
    most_layers = std::max(most_layers, static_cast<int>(way.layers));
  }
  Hops mean() const { return {nvlink / flows, nic / flows, layers / flows}; }
  // Of those that occur; which of the two has the longer latency is the caller's to say.
  Hops over_nic() const { return {0, 1, static_cast<double>(most_layers)}; }

  double slowest_rate = std::numeric_limits<double>::infinity();
  double flows = 0, nvlink = 0, nic = 0, layers = 0;
  int most_layers = 0;
};

PaceSolver::PaceSolver(const config::ClusterConfig& cluster, const parallel::Mesh& mesh,
                       const cluster::Fabric& fabric)
    : nvlink_latency_(cluster.nvlink_latency),
      nic_latency_(cluster.nic_latency),
      switch_latency_(cluster.switch_latency),
      mesh_(mesh),
      fabric_(fabric) {}

double PaceSolver::latency(const Hops& hops, const Protocol& protocol, bool tree) const {
  const Protocol::Latencies &of = tree ? protocol.tree : protocol.ring, &simple = plain_protocol.ring;
  // With one rank a node nothing hides what a hop over NICs takes: NCCL counts it like a tree's.
  const double nic = hops.nvlink > 0 ? of.nic : protocol.tree.nic;
  const double nvlink = !tree && hops.nic > 0 ? protocol.ring_nvlink_across : of.nvlink;
  return hops.nvlink * nvlink_latency_ * nvlink / simple.nvlink + hops.nic * nic_latency_ * nic / simple.nic +
         hops.layers * 2 * switch_latency_;
}

const AxisGroups& PaceSolver::groups(model::Axis axis) {
  const auto known = groups_.find(axis);
  if (known != groups_.end()) return known->second;
  return groups_.emplace(axis, AxisGroups(mesh_, axis, fabric_)).first->second;
}

const PaceSolver::Shape& PaceSolver::shape(const std::string& algorithm, int ranks, int ranks_per_node) {
  const auto [known, is_new] = shapes_.try_emplace({algorithm, ranks, ranks_per_node});
  Shape& s = known->second;
  if (!is_new || ranks < 2) return s;
  s.ranks_per_node = ranks_per_node;
  if (algorithm == "tree") {
    const std::vector<collective::Tree> trees = collective::trees(ranks, ranks_per_node);
    for (const collective::Tree& tree : trees) s.tree_height = std::max(s.tree_height, tree.root_height);
    s.phases.push_back({collective::full_tree_round(ranks, ranks_per_node).flows, 1,
                        1.0 / static_cast<double>(trees.size()), false, false});
    return s;
  }
  const bool halving = algorithm == "halving_doubling";
  collective::Patterns patterns = collective::round_patterns(
      halving ? Collective::all_reduce : Collective::all_gather, algorithm, ranks, ranks_per_node);
  const bool ring = algorithm == "ring";
  for (collective::RoundPattern& round : patterns.rounds) {
    const int carried = ring ? 1 : round.flows.front().chunks;
    s.phases.push_back({std::move(round.flows), round.rounds, static_cast<double>(carried) / patterns.chunks,
                        !ring, ring || algorithm == "hierarchical"});
  }
  return s;
}

// By group of the movement's axis.
const std::vector<const PaceSolver::Shape*>& PaceSolver::shapes(const Movement& movement) {
  const auto [known, is_new] = shapes_of_groups_.try_emplace({movement.axis, movement.algorithm});
  std::vector<const Shape*>& out = known->second;
  if (!is_new) return out;
  const AxisGroups& all = groups(movement.axis);
  size_t ranks = 0;
  int per_node = 0;
  for (int g = 0; g < all.count(); ++g) {
    if (g == 0 || ranks != all.members(g).size() || per_node != all.ranks_per_node(g)) {
      ranks = all.members(g).size();
      per_node = all.ranks_per_node(g);
      out.push_back(&shape(movement.algorithm, static_cast<int>(ranks), per_node));
    } else {
      out.push_back(out.back());
    }
  }
  return out;
}

// Calls visit(group, from, to, weight) group after group; of messages every rank is a group.
template <class Visit>
void PaceSolver::each_flow(const Movement& movement, size_t phase, Visit visit) {
  if (movement.algorithm == "message") {
    const int stages = mesh_.size(model::Axis::pp), stride = mesh_.stride(model::Axis::pp);
    for (int rank = 0; rank < mesh_.size(); ++rank) {
      const int stage = rank / stride % stages;
      const int target = ((stage + movement.shift) % stages + stages) % stages;
      visit(static_cast<size_t>(rank), rank, rank + (target - stage) * stride, 1);
    }
    return;
  }
  const AxisGroups& all = groups(movement.axis);
  const std::vector<const Shape*>& shape_of = shapes(movement);
  for (size_t g = 0; g < shape_of.size(); ++g) {
    if (phase >= shape_of[g]->phases.size()) continue;
    const Phase& p = shape_of[g]->phases[phase];
    const std::span<const int> members = all.members(static_cast<int>(g));
    for (const collective::PatternFlow& f : p.flows) {
      visit(g, members[static_cast<size_t>(f.from)], members[static_cast<size_t>(f.to)],
            p.one_each ? 1 : f.chunks);
    }
  }
}

void PaceSolver::count_uses(const Movement& movement, size_t phase) {
  each_flow(movement, phase, [&](size_t, int from, int to, int weight) {
    const cluster::Fabric::Path path = fabric_.path(from, to);
    for (const int link : path.links()) uses_[static_cast<size_t>(link)] += weight;
  });
}

size_t PaceSolver::phases(const Movement& movement) {
  if (movement.algorithm == "message") return 1;
  size_t most = 0;
  for (const Shape* s : shapes(movement)) most = std::max(most, s->phases.size());
  return most;
}

// By link, in the phase that has most flows there: when that is does not depend on how fast links are.
const std::vector<int>& PaceSolver::most_uses(const Movement& movement) {
  const auto [known, is_new] = most_uses_.try_emplace(movement, static_cast<size_t>(fabric_.links()), 0);
  std::vector<int>& most = known->second;
  for (size_t phase = 0; is_new && phase < phases(movement); ++phase) {
    uses_.assign(most.size(), 0);
    count_uses(movement, phase);
    for (size_t link = 0; link < most.size(); ++link) most[link] = std::max(most[link], uses_[link]);
  }
  return most;
}

void PaceSolver::count_all_uses(const Movement& movement, size_t phase, const std::vector<Movement>& others) {
  uses_.assign(static_cast<size_t>(fabric_.links()), 0);
  count_uses(movement, phase);
  for (const Movement& other : others) {
    const std::vector<int>& theirs = most_uses(other);
    for (size_t link = 0; link < uses_.size(); ++link) uses_[link] += theirs[link];
  }
}

void PaceSolver::add_to_pace(Pace& pace, const Tally& tally, const Shape& shape, const Phase& phase) const {
  pace.seconds_per_byte += phase.rounds * phase.share / tally.slowest_rate;
  if (phase.ring) {
    pace.ways += static_cast<double>(phase.rounds) * tally.mean();
    return;
  }
  const Hops inside{1, 0, 0};
  const bool leaves =
      tally.nic > 0 && (tally.nvlink == 0 || latency(tally.over_nic(), plain_protocol, false) >
                                                 latency(inside, plain_protocol, false));
  const Hops slowest = leaves ? tally.over_nic() : inside;
  if (shape.tree_height == 0) {
    pace.ways += static_cast<double>(phase.rounds) * slowest;
    return;
  }
  const int chain = shape.ranks_per_node - 1;
  pace.fill = 2 * shape.tree_height;
  pace.piece = slowest;
  pace.ways += 2.0 * chain * inside;
  pace.ways += 2.0 * (shape.tree_height - chain) * (tally.nic > 0 ? tally.over_nic() : inside);
}

// A flow counts on an equal part of its fullest link. What max-min fairness gives it beyond that is its own
// only as long as other flows are held up elsewhere, and a faster link there would then make it slower. Of
// flows that a chain of shared links joins the slowest has no more, and all of them wait for it.
double PaceSolver::rate(const cluster::Fabric::Path& path) const {
  double rate = std::numeric_limits<double>::infinity();
  for (const int link : path.links()) {
    rate = std::min(rate, fabric_.capacity(link) / uses_[static_cast<size_t>(link)]);
  }
  return rate;
}

void PaceSolver::add_phase(const Movement& movement, size_t phase) {
  const std::vector<const Shape*>& shape_of = shapes(movement);
  size_t group = 0;
  Tally tally;
  const auto finish = [&] {
    if (tally.flows > 0) {
      add_to_pace(paces_[group], tally, *shape_of[group], shape_of[group]->phases[phase]);
    }
    tally = {};
  };
  each_flow(movement, phase, [&](size_t g, int from, int to, int weight) {
    if (g != group) finish();
    group = g;
    const cluster::Fabric::Path path = fabric_.path(from, to);
    tally.add(path.way, weight, rate(path));
  });
  finish();
}

Paces PaceSolver::solve_messages(const Movement& movement, const std::vector<Movement>& others) {
  count_all_uses(movement, 0, others);
  Paces out;
  std::vector<int> kinds;
  kinds.reserve(static_cast<size_t>(mesh_.size()));
  each_flow(movement, 0, [&](size_t, int from, int to, int) {
    const cluster::Fabric::Path path = fabric_.path(from, to);
    const Hops hops{path.way.nvlink ? 1.0 : 0.0, path.way.nic ? 1.0 : 0.0,
                    static_cast<double>(path.way.layers)};
    kinds.push_back(kind_of(out.kinds, {hops, {}, 1 / rate(path), 1}));
  });
  if (out.kinds.size() > 1) out.kind_of = std::make_shared<const std::vector<int>>(std::move(kinds));
  return out;
}

Paces PaceSolver::solve(const Movement& movement, const std::vector<Movement>& others) {
  if (movement.algorithm == "message") return solve_messages(movement, others);
  paces_.assign(shapes(movement).size(), {});
  Paces out;
  for (size_t phase = 0; phase < phases(movement); ++phase) {
    count_all_uses(movement, phase, others);
    add_phase(movement, phase);
  }
  std::vector<int> kinds(paces_.size());
  for (size_t g = 0; g < paces_.size(); ++g) kinds[g] = kind_of(out.kinds, paces_[g]);
  if (out.kinds.size() == 1) return out;
  const AxisGroups& all = groups(movement.axis);
  std::vector<int> by_rank;
  by_rank.reserve(static_cast<size_t>(mesh_.size()));
  for (int rank = 0; rank < mesh_.size(); ++rank) {
    by_rank.push_back(kinds[static_cast<size_t>(all.group_of(rank))]);
  }
  out.kind_of = std::make_shared<const std::vector<int>>(std::move(by_rank));
  return out;
}

const Paces& PaceSolver::paces(const Movement& movement) {
  const auto known = alone_.find(movement);
  if (known != alone_.end()) return known->second;
  return alone_.emplace(movement, solve(movement, {})).first->second;
}

const Paces& PaceSolver::paces_beside(const Movement& movement, const std::vector<Movement>& others) {
  const std::pair key(movement, others);
  const auto known = beside_.find(key);
  if (known != beside_.end()) return known->second;
  for (const Movement& other : others) most_uses(other);  // first: all use the same arrays
  return beside_.emplace(key, solve(movement, others)).first->second;
}

}  // namespace lockstep::cost
