#include "sim/fluid_collective.hpp"

#include <algorithm>
#include <utility>

namespace lockstep::tests {

namespace {

collective::Collective collective_of(model::OpKind kind) {
  if (kind == model::OpKind::all_reduce) return collective::Collective::all_reduce;
  return kind == model::OpKind::all_gather ? collective::Collective::all_gather
                                           : collective::Collective::reduce_scatter;
}

}  // namespace

// `streams`: chunk c goes in stream c % streams; flows of two streams do not wait for each other.
FluidCollectives::Plan FluidCollectives::plan_of(const collective::StepList& list, int streams) {
  const bool in_step = list.algorithm == "halving_doubling";
  Plan plan;
  std::map<std::tuple<int, int, int, int>, int> flows;     // by round, from, to, stream
  std::map<std::tuple<int, int, int>, int> latest;         // by from, to, stream
  std::map<std::pair<int, int>, std::vector<int>> brings;  // by rank and chunk: the flows that bring it
  std::vector<std::pair<std::pair<int, int>, int>> brought;
  std::vector<std::vector<int>> before(static_cast<size_t>(list.ranks)), now = before;  // flows of a rank
  int round = 0;
  for (const collective::Step& s : list.steps) {
    if (s.round != round) {  // what a round brings later rounds send on
      for (const auto& [what, by] : brought) brings[what].push_back(by);
      brought.clear();
      before = std::exchange(now, std::vector<std::vector<int>>(before.size()));
      round = s.round;
    }
    const int stream = s.chunk % streams;
    const auto [known, is_new] = flows.try_emplace({s.round, s.from, s.to, stream}, plan.size());
    const int number = known->second;
    if (is_new) {
      plan.emplace_back();
      plan.back().from = s.from;
      plan.back().to = s.to;
      const auto [last, first] = latest.try_emplace({s.from, s.to, stream}, number);
      if (!first) {
        plan.back().before = last->second;
        plan[static_cast<size_t>(last->second)].after = number;
        last->second = number;
      }
    }
    plan[static_cast<size_t>(number)].share += 1.0 / list.chunks;
    const auto needs = [&](const std::vector<int>& earlier) {
      for (const int e : earlier) plan[static_cast<size_t>(e)].next.push_back(number);
      plan[static_cast<size_t>(number)].needs += static_cast<int>(earlier.size());
    };
    needs(brings[{s.from, s.chunk}]);
    for (const int rank : {s.from, s.to}) {
      if (in_step && is_new) {
        needs(before[static_cast<size_t>(rank)]);
        now[static_cast<size_t>(rank)].push_back(number);
      }
    }
    brought.push_back({{s.to, s.chunk}, number});
  }
  return plan;
}

std::shared_ptr<const FluidCollectives::Plan> FluidCollectives::plan(const Key& key) {
  std::shared_ptr<const Plan>& known = plans_[key];
  if (known != nullptr) return known;
  const auto& [kind, algorithm, ranks, per_node, pieces] = key;
  collective::StepList list = collective::build(collective_of(kind), algorithm, ranks, per_node, pieces);
  int streams = 1;
  if (algorithm == "ring") streams = list.chunks / ranks;
  if (algorithm == "tree") {
    // A tree's chunks are its pieces one after another: number them tree by tree instead.
    streams = list.chunks / pieces;
    for (collective::Step& s : list.steps) s.chunk = s.chunk % pieces * streams + s.chunk / pieces;
  }
  known = std::make_shared<const Plan>(plan_of(list, streams));
  return known;
}

double FluidCollectives::latency(int from, int to) const {
  const cluster::Way way = fabric_.way(from, to);
  return way.nvlink ? cluster_.nvlink_latency
                    : cluster_.nic_latency + way.layers * 2 * cluster_.switch_latency;
}

// 1 where nodes have different numbers of them.
int FluidCollectives::ranks_per_node(const std::vector<int>& ranks) const {
  std::map<int, int> on_node;
  for (const int rank : ranks) ++on_node[fabric_.node(rank)];
  const int each = on_node.begin()->second;
  return std::all_of(on_node.begin(), on_node.end(), [&](const auto& n) { return n.second == each; }) ? each
                                                                                                      : 1;
}

void FluidCollectives::start(const cost::Transfer& collective, int member, Happens ended) {
  const auto run = std::make_shared<Run>();
  run->ranks = mesh_.group(collective.axis, member);
  run->ended = std::move(ended);
  const int n = static_cast<int>(run->ranks.size());
  if (n < 2) return network_.at(network_.now(), run->ended);
  std::sort(run->ranks.begin(), run->ranks.end());
  const cost::Choice& choice = choices_.choice(collective);
  run->algorithm = choice.algorithm;
  run->bytes = static_cast<double>(collective.bytes);
  run->plan = plan({collective.kind, choice.algorithm, n, ranks_per_node(run->ranks), choice.pieces});
  run->left = run->plan->size();
  run->latency_passed.resize(run->left);
  run->gone.resize(run->left);
  for (const Flow& flow : *run->plan) run->needs.push_back(flow.needs);
  network_.at(network_.now() + cluster_.message_overhead, [this, run] {
    for (size_t f = 0; f < run->plan->size(); ++f) {
      if ((*run->plan)[f].needs == 0) begin(run, static_cast<int>(f));
    }
  });
}

// What it needs is there; in a tree the piece before has gone too.
void FluidCollectives::begin(const std::shared_ptr<Run>& run, int flow) {
  const Flow& f = (*run->plan)[static_cast<size_t>(flow)];
  if (run->algorithm == "tree" && f.before >= 0 && !run->gone[static_cast<size_t>(f.before)]) return;
  const double wait = latency(run->ranks[static_cast<size_t>(f.from)], run->ranks[static_cast<size_t>(f.to)]);
  network_.at(network_.now() + wait, [this, run, flow] {
    run->latency_passed[static_cast<size_t>(flow)] = true;
    try_bytes(run, flow);
  });
}

void FluidCollectives::try_bytes(const std::shared_ptr<Run>& run, int flow) {
  const Flow& f = (*run->plan)[static_cast<size_t>(flow)];
  const bool first = f.before < 0 || run->gone[static_cast<size_t>(f.before)];
  if (!first || !run->latency_passed[static_cast<size_t>(flow)]) return;
  network_.start_flow(run->ranks[static_cast<size_t>(f.from)], run->ranks[static_cast<size_t>(f.to)],
                      f.share * run->bytes, [this, run, flow] { end(run, flow); });
}

void FluidCollectives::end(const std::shared_ptr<Run>& run, int flow) {
  const Flow& f = (*run->plan)[static_cast<size_t>(flow)];
  run->gone[static_cast<size_t>(flow)] = true;
  if (f.after >= 0) {
    const bool is_ready = run->needs[static_cast<size_t>(f.after)] == 0;
    if (run->algorithm != "tree") {
      try_bytes(run, f.after);
    } else if (is_ready) {
      begin(run, f.after);
    }
  }
  for (const int next : f.next) {
    if (--run->needs[static_cast<size_t>(next)] == 0) begin(run, next);
  }
  if (--run->left == 0) run->ended();
}

void FluidCollectives::send(int from, int to, double bytes, Happens arrived) {
  if (from == to) return network_.at(network_.now(), std::move(arrived));
  const double wait = cluster_.message_overhead + latency(from, to);
  network_.at(network_.now() + wait, [this, from, to, bytes, arrived = std::move(arrived)] {
    network_.start_flow(from, to, bytes, arrived);
  });
}

std::vector<double> fluid_seconds(const config::RunFile& run, const parallel::Mesh& mesh,
                                  const cost::Transfer& transfer) {
  const cluster::Fabric fabric(run.cluster, mesh.size(), run.simulate.slow_links,
                               static_cast<uint64_t>(run.simulate.seed));
  FluidNetwork network(fabric);
  FluidCollectives collectives(run, mesh, fabric, network);
  std::vector<double> seconds(static_cast<size_t>(mesh.size()));
  for (int rank = 0; rank < mesh.size(); ++rank) {
    if (transfer.kind == model::OpKind::send) {
      parallel::Coordinates c = mesh.coordinates(rank);
      const int stages = mesh.size(model::Axis::pp);
      c.pp = ((c.pp + transfer.stage_shift) % stages + stages) % stages;
      collectives.send(rank, mesh.rank(c), static_cast<double>(transfer.bytes),
                       [&, rank] { seconds[static_cast<size_t>(rank)] = network.now(); });
      continue;
    }
    std::vector<int> group = mesh.group(transfer.axis, rank);
    if (*std::min_element(group.begin(), group.end()) != rank) continue;
    collectives.start(transfer, rank, [&, group] {
      for (const int member : group) seconds[static_cast<size_t>(member)] = network.now();
    });
  }
  network.run();
  return seconds;
}

}  // namespace lockstep::tests
