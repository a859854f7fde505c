// A step program with its ops expanded and priced, as the lanes run it.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <tuple>
#include <vector>

#include "cost/op_prices.hpp"
#include "parallel/program.hpp"
#include "sim/critical_path.hpp"
#include "sim/crowding.hpp"
#include "sim/transfers.hpp"

namespace lockstep::sim {

// How an op occupies a rank.
enum class Way : uint8_t { kernel, tp, tp_kv, cp, dp, pp, pp_ends, send, receive };

struct PricedOp {
  model::Op op;
  Way way = Way::kernel;
  PathKind kind = PathKind::gemm;
  double seconds = 0;                             // of a kernel
  std::shared_ptr<const TransferTimes> transfer;  // of a collective or message
};

struct PricedAction {
  parallel::Action action;
  const std::vector<PricedOp>* ops = nullptr;
  uint32_t first_op = 0;    // index of its first op in the rank's program
  double host_seconds = 0;  // of a pass: it takes no less
  // By op, what slows a collective over dp_cp down (null: nothing does); empty: of no op anything.
  std::vector<std::shared_ptr<const Crowding>> crowding;
};

class PricedProgram {
 public:
  // What is of a kind in `free` takes no time. Without contention nothing is crowded. Throws RunError when an
  // action names a stage, chunk or micro-batch that the layout does not have.
  PricedProgram(const parallel::Layout& layout, const parallel::Program& program,
                const cost::OpPrices& prices, StageTransfers& transfers,
                const std::vector<PathKind>& free = {}, bool contention = true);

  int stage() const { return stage_; }
  const std::vector<PricedAction>& actions() const { return actions_; }
  uint32_t op_count() const { return op_count_; }
  // Whether a reduction of gradients waits for the one before it (see parallel/program.hpp).
  bool one_reduction_at_a_time() const { return one_reduction_at_a_time_; }

  // The schedule alone, for one lane: passes and messages, nothing else. Messages are free; tensor- and
  // context-parallel collectives take what the slowest lane's take, or nothing either. What a pass does is
  // one kernel.
  enum class Free : uint8_t { messages, all_communication };
  PricedProgram schedule_alone(Free free) const;

 private:
  PricedProgram() = default;
  static std::vector<PricedOp> ops_alone(const PricedAction& action, Free free);

  int stage_ = 0;
  bool one_reduction_at_a_time_ = false;
  std::vector<PricedAction> actions_;
  uint32_t op_count_ = 0;
  // Ops do not depend on the micro-batch.
  using ListKey = std::tuple<parallel::ActionKind, int, int>;  // kind, chunk, peer
  std::map<ListKey, std::shared_ptr<std::vector<PricedOp>>> lists_;
  std::map<ListKey, double> host_seconds_;
};

// Its collectives are queued beside the computation; every other one is waited for where it stands.
constexpr bool is_queued(parallel::ActionKind kind) {
  return kind == parallel::ActionKind::unshard || kind == parallel::ActionKind::reduce_gradients ||
         kind == parallel::ActionKind::gather_parameters;
}

// A forward, or a message of hidden states.
constexpr bool goes_forward(parallel::ActionKind kind) {
  return kind == parallel::ActionKind::forward || kind == parallel::ActionKind::send_forward ||
         kind == parallel::ActionKind::receive_forward;
}

}  // namespace lockstep::sim
