// Element-wise reduction in a fixed order.
#pragma once

#include <cstddef>
#include <cstring>
#include <span>

#include "comm/communicator.hpp"

namespace lockstep::comm {

// destination[i] = ((s0[i] + s1[i]) + s2[i]) + ... over `count` elements of all sources, or their maximum (a
// NaN wins); bf16 is accumulated in fp32 and rounded once, to nearest even. `second`, if not null, gets the
// same. Sources may be the destinations themselves, but may not overlap them otherwise. No alignment is
// needed beyond an element's.
void reduce(std::span<const std::byte* const> sources, std::byte* destination, std::byte* second,
            size_t count, DataType type, ReduceOp op);

// memcpy that takes null pointers when there is nothing to copy and skips a copy onto itself.
inline void copy_bytes(void* to, const void* from, size_t bytes) {
  if (bytes != 0 && to != from) std::memcpy(to, from, bytes);
}

}  // namespace lockstep::comm
