#include "sim/imperfection.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <numbers>

#include "sim/op_transfer.hpp"

namespace lockstep::sim {

namespace {

using parallel::Axis;

uint64_t seed_of(const StepOptions& options) { return static_cast<uint64_t>(options.seed); }

int node_of(const parallel::Layout& layout, int rank) {
  return static_cast<int>(rank / layout.run().cluster.gpus_per_node);
}

std::vector<size_t> passes_of(const parallel::Program& program) {
  std::vector<size_t> passes;
  for (size_t i = 0; i < program.actions.size(); ++i) {
    if (parallel::is_pass(program.actions[i].kind)) passes.push_back(i);
  }
  return passes;
}

void add_pauses(const parallel::Program& program, const std::vector<int>& ranks, const StepOptions& options,
                RareEvents& events) {
  const std::vector<size_t> passes = passes_of(program);
  if (passes.empty()) return;
  for (size_t lane = 0; lane < ranks.size(); ++lane) {
    if (!collects_garbage(ranks[lane], options)) continue;
    const double where = uniform_of(seed_of(options), "garbage collection",
                                    static_cast<uint32_t>(ranks[lane]), static_cast<uint32_t>(options.step));
    const auto pass = static_cast<size_t>(where * static_cast<double>(passes.size()));
    events.pauses[passes[pass]].push_back({lane, options.garbage_collection_seconds});
  }
}

std::vector<bool> group_leaves_node(const parallel::Layout& layout, Axis axis,
                                    const std::vector<int>& ranks) {
  std::vector<bool> out;
  for (const int rank : ranks) {
    const std::vector<int> group = layout.mesh().group(axis, rank);
    out.push_back(std::any_of(group.begin(), group.end(),
                              [&](int member) { return node_of(layout, member) != node_of(layout, rank); }));
  }
  return out;
}

std::vector<bool> message_leaves_node(const parallel::Layout& layout, int shift,
                                      const std::vector<int>& ranks) {
  std::vector<bool> out;
  for (const int rank : ranks) {
    parallel::Coordinates receiver = layout.mesh().coordinates(rank);
    receiver.pp = (receiver.pp + shift) % layout.stages();
    out.push_back(node_of(layout, layout.mesh().rank(receiver)) != node_of(layout, rank));
  }
  return out;
}

// What is free loses nothing.
void add_lost_packets(const parallel::Layout& layout, const parallel::Program& program,
                      const std::vector<int>& ranks, const StepOptions& options, RareEvents& events) {
  events.retransmit_probability = options.retransmit_probability;
  events.retransmit_seconds = options.retransmit_seconds;
  for (const Axis axis : {Axis::tp, Axis::tp_kv, Axis::cp, Axis::pp, Axis::pp_ends, Axis::dp_cp}) {
    if (options.is_free(transfer_kind(axis))) continue;
    events.group_leaves_node[axis] = group_leaves_node(layout, axis, ranks);
  }
  if (options.is_free(PathKind::pp)) return;
  for (const parallel::Action& action : program.actions) {
    if (!parallel::is_send(action.kind)) continue;
    const int shift = shift_to_peer(layout, program.stage, action);
    auto& leaves = events.message_leaves_node[shift];
    if (leaves.empty()) leaves = message_leaves_node(layout, shift, ranks);
  }
}

}  // namespace

bool is_throttled(const parallel::Layout& layout, int rank, const StepOptions& options) {
  if (!options.jitter || options.throttled_nodes <= 0) return false;
  const auto node = static_cast<uint32_t>(node_of(layout, rank));
  return uniform_of(seed_of(options), "throttled node", node) < options.throttled_nodes;
}

// A day's wave, highest at 15 hours, lowest (1) at 3.
double heat_factor(const StepOptions& options) {
  const double angle = 2 * std::numbers::pi * (options.hour - 15) / 24;
  return 1 + options.daily_heat * (1 + std::cos(angle)) / 2;
}

double named_factor(const std::vector<config::SlowRank>& named, int rank) {
  double factor = 1;
  for (const config::SlowRank& slow : named) factor *= slow.rank == rank ? slow.factor : 1;
  return factor;
}

bool collects_garbage(int rank, const StepOptions& options) {
  if (!options.jitter || options.garbage_collection_seconds <= 0) return false;
  if (std::find(options.unpaused.begin(), options.unpaused.end(), rank) != options.unpaused.end()) {
    return false;
  }
  const double interval = static_cast<double>(options.garbage_collection_interval);
  const double phase = std::floor(
      interval * uniform_of(seed_of(options), "garbage collection, phase", static_cast<uint32_t>(rank)));
  return std::fmod(options.step + phase, interval) == 0;
}

std::vector<double> time_factors(const parallel::Layout& layout, const StepOptions& options) {
  std::vector<double> factors;
  const double heat = heat_factor(options);
  for (int rank = 0; rank < layout.mesh().size(); ++rank) {
    double factor = heat;
    if (options.jitter && options.rank_jitter > 0) {
      factor *= rank_time_factor(seed_of(options), rank, options.rank_jitter);
    }
    if (is_throttled(layout, rank, options)) factor *= options.throttle_factor;
    factors.push_back(factor);
  }
  for (const config::SlowRank& slow : options.slow) factors[static_cast<size_t>(slow.rank)] *= slow.factor;
  return factors;
}

RareEvents rare_events(const parallel::Layout& layout, const parallel::Program& program,
                       const std::vector<int>& ranks, const StepOptions& options) {
  RareEvents events;
  if (!options.jitter) return events;
  if (!options.is_free(PathKind::pause)) add_pauses(program, ranks, options, events);
  if (options.retransmit_probability > 0) add_lost_packets(layout, program, ranks, options, events);
  return events;
}

std::string reasons(const parallel::Layout& layout, int rank, const StepOptions& options,
                    const LostPackets& lost) {
  std::string out;
  const auto add = [&](const std::string& reason) { out += (out.empty() ? "" : ", ") + reason; };
  if (const double factor = named_factor(options.slow, rank); factor != 1) {
    add(fmt::format("simulate.slow x{:g}", factor));
  }
  if (is_throttled(layout, rank, options)) {
    add(fmt::format("node {} throttled x{:g}", node_of(layout, rank), options.throttle_factor));
  }
  if (collects_garbage(rank, options)) {
    add(fmt::format("garbage collection {:g} s", options.garbage_collection_seconds));
  }
  if (const double factor = named_factor(options.slow_links, rank); factor != 1) {
    add(fmt::format("slow link x{:g}", factor));
  }
  if (const int count = lost.by_rank[static_cast<size_t>(rank)]; count > 0) {
    add(fmt::format("{} packet{} lost", count, count == 1 ? "" : "s"));
  }
  return out;
}

double own_speed(int rank, const StepOptions& options) {
  const bool differs = options.jitter && options.rank_jitter > 0;
  return differs ? rank_time_factor(seed_of(options), rank, options.rank_jitter) : 1;
}

}  // namespace lockstep::sim
