// A step program with its ops expanded and priced, as the lanes run it.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <utility>
#include <vector>

#include "cost/op_prices.hpp"
#include "parallel/program.hpp"

namespace lockstep::sim {

// How an op occupies a rank.
enum class Way : uint8_t { kernel, tp, tp_kv, cp, dp, pp, pp_ends, send, receive };

struct PricedOp {
  model::Op op;
  Way way = Way::kernel;
  double seconds = 0;  // of a kernel
  double rounds = 0;   // of a collective or message: how many latencies it takes,
  double bytes = 0;    // and how many bytes pass its slowest link
};

struct PricedAction {
  parallel::Action action;
  const std::vector<PricedOp>* ops = nullptr;
  uint32_t first_op = 0;  // index of its first op in the rank's program
};

class PricedProgram {
 public:
  // Throws RunError when an action names a stage, chunk or micro-batch that the layout does not have.
  PricedProgram(const parallel::Layout& layout, const parallel::Program& program,
                const cost::OpPrices& prices);

  int stage() const { return stage_; }
  const std::vector<PricedAction>& actions() const { return actions_; }
  uint32_t op_count() const { return op_count_; }
  // Whether a reduction of gradients waits for the one before it (see parallel/program.hpp).
  bool one_reduction_at_a_time() const { return one_reduction_at_a_time_; }

  // The schedule alone: passes and messages, nothing else.
  PricedProgram passes_and_messages() const;

 private:
  int stage_ = 0;
  bool one_reduction_at_a_time_ = false;
  std::vector<PricedAction> actions_;
  uint32_t op_count_ = 0;
  // Ops do not depend on the micro-batch: one list a kind and chunk.
  std::map<std::pair<parallel::ActionKind, int>, std::shared_ptr<std::vector<PricedOp>>> lists_;
};

// A forward, or a message of hidden states.
constexpr bool goes_forward(parallel::ActionKind kind) {
  return kind == parallel::ActionKind::forward || kind == parallel::ActionKind::send_forward ||
         kind == parallel::ActionKind::receive_forward;
}

}  // namespace lockstep::sim
