// What a stage holds of activations as it walks through its program.
#pragma once

#include <cstdint>

#include "parallel/program.hpp"

namespace lockstep::parallel {

// Bytes held for micro-batches between their forward and the end of their backward, followed action by
// action: a forward adds a chunk's activations, a backward frees them, and of the two halves the first leaves
// what the second needs.
class LiveActivations {
 public:
  LiveActivations(const Layout& layout, int stage) : layout_(layout), stage_(stage) {}

  void take(const Action& action);
  int64_t bytes() const { return bytes_; }
  int64_t peak() const { return peak_; }  // of the values after each action

 private:
  const Layout& layout_;
  int stage_;
  int64_t bytes_ = 0, peak_ = 0;
};

int64_t peak_activation_bytes(const Layout& layout, const Program& program);

}  // namespace lockstep::parallel
