// What a pass holds while it runs: the tensors that the layers (nn) allocate and free, followed one by one.
// Kernels' own scratch memory is not among them, such as what oneDNN takes for bf16 products.
#pragma once

#include <cstdint>

#include "parallel/program.hpp"

namespace lockstep::plan {

// Bytes beyond what was held before the pass; its input (a hidden state, or the gradient of one) counts as
// held before.
struct PassMemory {
  int64_t peak = 0;    // the most while it runs, at least 0
  int64_t change = 0;  // when it has ended, its output included
};

// `pass`: forward, backward or one of its halves.
PassMemory pass_memory(const parallel::Layout& layout, int stage, parallel::ActionKind pass, int chunk);

// The norms' weight gradients that wait from the first half of a backward to the second.
int64_t waiting_norm_bytes(const parallel::Layout& layout, int stage, int chunk);

}  // namespace lockstep::plan
