// What makes ranks differ in the plain simulator, rank by rank. The random numbers are defined by
// sim/jitter.hpp; what they mean stands here once more.
#pragma once

#include <cmath>
#include <numbers>
#include <vector>

#include "parallel/program.hpp"
#include "sim/jitter.hpp"
#include "sim/simulate_step.hpp"

namespace lockstep::tests {

class ReferenceImperfection {
 public:
  ReferenceImperfection(const parallel::Layout& layout, const sim::StepOptions& options)
      : layout_(layout), o_(options), seed_(static_cast<uint64_t>(options.seed)) {}

  double time_factor(int rank) const {
    double factor =
        1 + o_.daily_heat / 2 + o_.daily_heat / 2 * std::cos((o_.hour - 15) * std::numbers::pi / 12);
    if (o_.jitter) factor *= sim::rank_time_factor(seed_, rank, o_.rank_jitter);
    const auto node = static_cast<uint32_t>(rank / nodes_gpus());
    if (o_.jitter && sim::uniform_of(seed_, "throttled node", node) < o_.throttled_nodes) {
      factor *= o_.throttle_factor;
    }
    for (const config::SlowRank& slow : o_.slow) factor *= slow.rank == rank ? slow.factor : 1.0;
    return factor;
  }

  // Of a collective that `rank` draws for.
  double collective_retransmit(int rank, model::Axis axis, sim::LaneKey key, uint32_t index) const {
    return retransmit(rank, layout_.mesh().group(axis, rank), key, index);
  }
  double message_retransmit(int sender, int receiver, sim::LaneKey key, uint32_t index) const {
    return retransmit(sender, {receiver}, key, index);
  }

  // The pass before which the rank's host collects garbage; null: none.
  const parallel::Action* pause_at(int rank, const parallel::Program& program) const {
    if (!o_.jitter || o_.garbage_collection_seconds <= 0) return nullptr;
    const auto r = static_cast<uint32_t>(rank);
    const auto interval = static_cast<double>(o_.garbage_collection_interval);
    const auto phase =
        static_cast<int64_t>(interval * sim::uniform_of(seed_, "garbage collection, phase", r));
    if ((o_.step + phase) % o_.garbage_collection_interval != 0) return nullptr;
    std::vector<const parallel::Action*> passes;
    for (const parallel::Action& action : program.actions) {
      if (parallel::is_pass(action.kind)) passes.push_back(&action);
    }
    const double where = sim::uniform_of(seed_, "garbage collection", r, static_cast<uint32_t>(o_.step));
    return passes.empty() ? nullptr : passes[static_cast<size_t>(where * static_cast<double>(passes.size()))];
  }

 private:
  double retransmit(int rank, const std::vector<int>& others, sim::LaneKey key, uint32_t index) const {
    if (!o_.jitter || o_.retransmit_probability <= 0) return 0;
    bool leaves = false;
    for (const int other : others) leaves = leaves || other / nodes_gpus() != rank / nodes_gpus();
    sim::OpKey op = sim::op_key(index);
    op.a ^= 0x9E3779B9u;
    const bool lost = sim::jitter_bits(key, op) / 4294967296.0 < o_.retransmit_probability;
    return leaves && lost ? o_.retransmit_seconds : 0;
  }

  int nodes_gpus() const { return static_cast<int>(layout_.run().cluster.gpus_per_node); }

  const parallel::Layout& layout_;
  sim::StepOptions o_;
  uint64_t seed_;
};

}  // namespace lockstep::tests
