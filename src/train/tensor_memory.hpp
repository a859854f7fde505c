// How much memory a worker's tensors take: every tensor's buffer is counted when it is allocated and when it
// is freed.
#pragma once

#include <cstdint>

namespace lockstep::train {

// From now on this process's CPU tensors are counted. Call once, before the first tensor.
void count_tensor_memory();

// Bytes of all tensors that live now, and the most there ever were since the last reset. 0 before
// count_tensor_memory.
int64_t tensor_bytes();
int64_t peak_tensor_bytes();
void reset_peak_tensor_bytes();

}  // namespace lockstep::train
