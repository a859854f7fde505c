// The ops of a step outside the layers: messages, collectives over state, norm, optimizer.
#pragma once

#include <vector>

#include "parallel/layout.hpp"

namespace lockstep::parallel {

// Collects ops of one pipeline position.
class StepOps {
 public:
  StepOps(const Layout& layout, int stage) : layout_(layout), s_(layout.shape()), stage_(stage) {}

  void load_batch();
  void message(const char* name, model::OpKind kind);
  void gather_parameters(int chunk);  // unshard too
  void reduce_gradients(int chunk);
  void gather_gradients(int chunk);
  void sum_tied_gradients(int chunk);
  void gradient_norm();
  void optimizer_step(int chunk);
  void evaluation_loss();

  std::vector<model::Op> take() { return std::move(ops_); }

 private:
  void collective(const char* name, model::OpKind kind, Axis axis, int64_t bytes);
  void memory(const char* name, int64_t bytes);

  const Layout& layout_;
  const model::ShardShape& s_;
  int stage_;
  std::vector<model::Op> ops_;
};

// Numbers (fp64) that a rank sums over dp_cp with gradient_norm: tokens, a loss for each logical replica and
// rank of cp, and with sharded gradients the blocks' sums of squares of all its chunks.
int64_t norm_numbers(const Layout& layout, int stage);
// Numbers (fp64) that it then sums over tp and pp: squares, loss, tokens.
inline constexpr int64_t total_numbers = 3;

}  // namespace lockstep::parallel
