// The step program: what one pipeline position does in one training step, as an ordered list of actions; each
// action expands into ops. The trainer executes it, the simulator prices it; there is no other place where a
// step is written down.
//
// Actions are queued in order. Receives are posted where they stand and waited for by the pass that needs
// them; sends, gradient reductions and parameter gathers run beside the computation on their streams;
// everything else runs one after another on the compute stream (tensor-parallel collectives too: they cannot
// be hidden).
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "model/layer_program.hpp"
#include "parallel/layout.hpp"
#include "parallel/schedule.hpp"

namespace lockstep::parallel {

enum class ActionKind : uint8_t {
  load_batch,         // token ids of the whole step
  receive_forward,    // hidden state from the stage before
  forward,            //
  send_forward,       //
  receive_backward,   // gradient of the hidden state from the stage after
  backward,           // gradients of input and weights
  send_backward,      //
  reduce_gradients,   // of one chunk, over dp, into this rank's shard
  gradient_norm,      // global norm (and loss) over all axes
  optimizer_step,     // of one chunk's shard
  gather_parameters,  // of one chunk, over dp
  evaluation_loss,    // sum of the losses of an evaluation over all axes
};

struct Action {
  ActionKind kind = ActionKind::forward;
  int chunk = -1;        // local: 0 .. virtual_stages-1
  int micro_batch = -1;  //
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

const char* to_string(ActionKind kind);
std::string describe(const Action& action);  // "forward chunk 1 micro-batch 3"

}  // namespace lockstep::parallel
