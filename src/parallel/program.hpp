// The step program: what one pipeline position does in one training step, as an ordered list of actions; each
// action expands into ops. The trainer executes it, the simulator prices it; there is no other place where a
// step is written down.
//
// Actions are queued in order. Everything runs one after another on the compute stream (tensor- and
// context-parallel collectives too: they cannot be hidden), except what goes on beside it:
// - Receives are posted where they stand and waited for by the pass that needs them; sends are buffered.
// - unshard gathers a chunk's parameters; the chunk's next pass waits for it. With zero = 1 or 2 and
//   software.overlap_parameters the step begins with those of the last update, in place of gather_parameters.
// - reduce_gradients and gather_parameters. Without software.overlap_gradients the reductions stand after the
//   last backward. gather_gradients, sum_tied_gradients and gradient_norm wait for
//   every reduction, the next step for every gather. Where a reduction ends its buffer's life
//   (Layout::gradients_persist() is false), the next reduce_gradients waits for it before it starts: one is
//   under way at most.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "model/layer_program.hpp"
#include "parallel/layout.hpp"
#include "parallel/schedule.hpp"

namespace lockstep::parallel {

enum class ActionKind : uint8_t {
  load_batch,        // token ids of the whole step
  unshard,           // gathers a chunk's parameters over dp_cp (zero = 3, or overlap_parameters)
  reshard,           // frees them
  receive_forward,   // hidden state from the stage before
  forward,           //
  send_forward,      //
  receive_backward,  // gradient of the hidden state from the stage after
  backward,          // gradients of input and weights
  backward_input,    // the two
  backward_weight,   // apart
  send_backward,     //
  reduce_gradients,  // of one chunk, over dp_cp, into this rank's shard: of all micro-batches since the last
  gather_gradients,  // the reduced shards of one chunk, to all (zero = 0)
  sum_tied_gradients,  // of a tied embedding, over first and last stage
  gradient_norm,       // global norm, loss and token count, over all axes
  optimizer_step,      // of what this rank owns of one chunk
  gather_parameters,   // of one chunk, over dp_cp (zero = 1, 2)
  evaluation_loss,     // sums of an evaluation over all axes
};

struct Action {
  ActionKind kind = ActionKind::forward;
  int chunk = -1;        // local: 0 .. virtual_stages-1
  int micro_batch = -1;  // local: 0 .. Layout::micro_batches()-1; of reduce_gradients the last one in it
  int peer = -1;         // pipeline position at the other end of a message
  int peer_chunk = -1;   // the message's chunk over there
  bool operator==(const Action&) const = default;
};

struct Program {
  int stage = 0;
  std::vector<Action> actions;
};

// One training step, for every pipeline position.
std::vector<Program> build_step_programs(const Layout& layout);
// Forward passes only, over `micro_batches` of held-out sequences.
std::vector<Program> build_evaluation_programs(const Layout& layout, int micro_batches);

// The ops of an action at a pipeline position, in order. Ops do not depend on the micro-batch.
std::vector<model::Op> action_ops(const Layout& layout, int stage, const Action& action);

constexpr bool is_pass(ActionKind kind) {
  return kind == ActionKind::forward || kind == ActionKind::backward || kind == ActionKind::backward_input ||
         kind == ActionKind::backward_weight;
}
// A pass that needs the gradient of its output.
constexpr bool goes_back(ActionKind kind) {
  return kind == ActionKind::backward || kind == ActionKind::backward_input;
}
// A pass after which a micro-batch's weight gradients are complete.
constexpr bool ends_backward(ActionKind kind) {
  return kind == ActionKind::backward || kind == ActionKind::backward_weight;
}
constexpr bool is_send(ActionKind kind) {
  return kind == ActionKind::send_forward || kind == ActionKind::send_backward;
}
constexpr bool is_receive(ActionKind kind) {
  return kind == ActionKind::receive_forward || kind == ActionKind::receive_backward;
}

const char* to_string(ActionKind kind);
std::string describe(const Action& action);  // "forward chunk 1 micro-batch 3"

}  // namespace lockstep::parallel
