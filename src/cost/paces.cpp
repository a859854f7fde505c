#include "cost/paces.hpp"

#include <algorithm>

#include "collective/shapes.hpp"

namespace lockstep::cost {

namespace {

using collective::Collective;

Hops hops_of(const cluster::Way& way) {
  return {way.nvlink ? 1.0 : 0.0, way.nic ? 1.0 : 0.0, static_cast<double>(way.layers)};
}

Hops& operator+=(Hops& a, const Hops& b) {
  a.nvlink += b.nvlink;
  a.nic += b.nic;
  a.layers += b.layers;
  return a;
}

Hops operator*(double times, const Hops& h) { return {times * h.nvlink, times * h.nic, times * h.layers}; }

// The few kinds among many paces: groups that are alike mostly follow one another or take turns.
Paces by_kind(const std::vector<Pace>& paces, const std::vector<int>& group_of) {
  constexpr size_t remembered = 8;
  Paces out;
  std::vector<int> kind_of(paces.size());
  for (size_t g = 0; g < paces.size(); ++g) {
    const size_t known = out.kinds.size(), oldest = known > remembered ? known - remembered : 0;
    size_t kind = known;
    for (size_t k = known; k > oldest && kind == known; --k) {
      if (out.kinds[k - 1] == paces[g]) kind = k - 1;
    }
    if (kind == known) out.kinds.push_back(paces[g]);
    kind_of[g] = static_cast<int>(kind);
  }
  out.kind_of.resize(group_of.size());
  for (size_t r = 0; r < group_of.size(); ++r) out.kind_of[r] = kind_of[static_cast<size_t>(group_of[r])];
  return out;
}

}  // namespace

PaceSolver::PaceSolver(const config::ClusterConfig& cluster, const parallel::Mesh& mesh,
                       cluster::Fabric fabric)
    : nvlink_latency_(cluster.nvlink_latency),
      nic_latency_(cluster.nic_latency),
      switch_latency_(cluster.switch_latency),
      mesh_(mesh),
      fabric_(std::move(fabric)),
      max_min_(fabric_.capacities()) {}

double PaceSolver::latency(const Hops& hops, const Protocol& protocol, bool tree) const {
  return hops.nvlink * nvlink_latency_ * (tree ? protocol.tree_nvlink : protocol.ring_nvlink) +
         hops.nic * nic_latency_ * (tree ? protocol.tree_nic : protocol.ring_nic) +
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

size_t PaceSolver::phase_count(const Movement& movement) {
  if (movement.algorithm == "message") return 1;
  size_t most = 0;
  const AxisGroups& all = groups(movement.axis);
  const Shape* last = nullptr;
  for (int g = 0; g < all.count(); ++g) {
    const int ranks = static_cast<int>(all.members(g).size());
    if (last != nullptr && g > 0 && ranks == static_cast<int>(all.members(g - 1).size()) &&
        all.ranks_per_node(g) == all.ranks_per_node(g - 1)) {
      continue;
    }
    last = &shape(movement.algorithm, ranks, all.ranks_per_node(g));
    most = std::max(most, last->phases.size());
  }
  return most;
}

void PaceSolver::load_messages(int shift, Loaded& loaded) {
  const int stages = mesh_.size(model::Axis::pp);
  const int stride = mesh_.stride(model::Axis::pp);
  for (int rank = 0; rank < mesh_.size(); ++rank) {
    const int stage = rank / stride % stages;
    const int target = ((stage + shift) % stages + stages) % stages;
    loaded.ways.push_back(fabric_.add(flows_, rank, rank + (target - stage) * stride));
    loaded.ends.push_back(loaded.ways.size());
  }
}

// Adds to flows_.
void PaceSolver::load(const Movement& movement, size_t phase, Loaded& loaded) {
  loaded.ends.clear();
  loaded.ways.clear();
  loaded.shapes.clear();
  if (movement.algorithm == "message") return load_messages(movement.shift, loaded);
  const AxisGroups& all = groups(movement.axis);
  int ranks = 0, per_node = 0;
  for (int g = 0; g < all.count(); ++g) {
    const std::span<const int> members = all.members(g);
    if (g == 0 || ranks != static_cast<int>(members.size()) || per_node != all.ranks_per_node(g)) {
      ranks = static_cast<int>(members.size());
      per_node = all.ranks_per_node(g);
      loaded.shapes.push_back(&shape(movement.algorithm, ranks, per_node));
    } else {
      loaded.shapes.push_back(loaded.shapes.back());
    }
    const Shape& s = *loaded.shapes.back();
    if (phase < s.phases.size()) {
      const Phase& p = s.phases[phase];
      for (const collective::PatternFlow& f : p.flows) {
        loaded.ways.push_back(fabric_.add(flows_, members[static_cast<size_t>(f.from)],
                                          members[static_cast<size_t>(f.to)], p.one_each ? 1 : f.chunks));
      }
    }
    loaded.ends.push_back(loaded.ways.size());
  }
}

Hops PaceSolver::slowest(const Loaded& loaded, size_t begin, size_t end) const {
  Hops hops;
  double longest = -1;
  for (size_t f = begin; f < end; ++f) {
    const Hops one = hops_of(loaded.ways[f]);
    const double seconds = latency(one, protocols[0], false);
    if (seconds > longest) hops = one;
    longest = std::max(longest, seconds);
  }
  return hops;
}

void PaceSolver::add_phase(const Loaded& loaded, size_t phase, std::vector<Pace>& paces,
                           const std::vector<double>& rates) {
  size_t begin = 0;
  for (size_t g = 0; g < loaded.ends.size(); ++g) {
    const size_t end = loaded.ends[g];
    Pace& pace = paces[g];
    if (begin == end) continue;
    double least = rates[begin];
    for (size_t f = begin; f < end; ++f) least = std::min(least, rates[f]);
    if (loaded.shapes.empty()) {  // a message
      pace.ways = hops_of(loaded.ways[begin]);
      pace.seconds_per_byte = 1 / least;
      begin = end;
      continue;
    }
    const Shape& s = *loaded.shapes[g];
    const Phase& p = s.phases[phase];
    pace.seconds_per_byte += p.rounds * p.share / least;
    if (p.ring) {
      Hops around;
      double flows = 0;
      for (size_t f = begin; f < end; ++f) {
        const double times = p.one_each ? 1 : p.flows[f - begin].chunks;
        around += times * hops_of(loaded.ways[f]);
        flows += times;
      }
      pace.ways += (p.rounds / flows) * around;
    } else {
      const Hops hop = slowest(loaded, begin, end);
      if (s.tree_height > 0) {
        const int inside = s.ranks_per_node - 1;
        pace.fill = 2 * s.tree_height;
        pace.piece = hop;
        pace.ways += 2.0 * inside * Hops{1, 0, 0};
        pace.ways += 2.0 * (s.tree_height - inside) * hop;
      } else {
        pace.ways += static_cast<double>(p.rounds) * hop;
      }
    }
    begin = end;
  }
}

Paces PaceSolver::solve(const Movement& movement, const Movement* other) {
  const size_t phases = phase_count(movement);
  const bool message = movement.algorithm == "message";
  const auto count = static_cast<size_t>(message ? mesh_.size() : groups(movement.axis).count());
  std::vector<Pace> paces(count);
  size_t longest_phase = 0;
  double longest = 0, before = 0;
  for (size_t phase = 0; phase < phases; ++phase) {
    flows_.clear();
    load(movement, phase, loaded_);
    if (other != nullptr) load(*other, this->paces(*other).longest_phase, beside_);
    add_phase(loaded_, phase, paces, max_min_.rates(flows_));
    double so_far = 0;
    for (const Pace& pace : paces) so_far = std::max(so_far, pace.seconds_per_byte);
    if (so_far - before > longest) {
      longest = so_far - before;
      longest_phase = phase;
    }
    before = so_far;
  }
  std::vector<int> group_of(static_cast<size_t>(mesh_.size()));
  for (int r = 0; r < mesh_.size(); ++r) {
    group_of[static_cast<size_t>(r)] = message ? r : groups(movement.axis).group_of(r);
  }
  Paces out = by_kind(paces, group_of);
  out.longest_phase = longest_phase;
  return out;
}

const Paces& PaceSolver::paces(const Movement& movement) {
  const auto known = alone_.find(movement);
  if (known != alone_.end()) return known->second;
  return alone_.emplace(movement, solve(movement, nullptr)).first->second;
}

const Paces& PaceSolver::paces_beside(const Movement& movement, const Movement& other) {
  const std::pair key(movement, other);
  const auto known = beside_paces_.find(key);
  if (known != beside_paces_.end()) return known->second;
  paces(other);  // before this one's flows are loaded
  return beside_paces_.emplace(key, solve(movement, &other)).first->second;
}

}  // namespace lockstep::cost
