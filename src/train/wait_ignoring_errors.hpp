// For destructors: a tensor must outlive the asynchronous operation on it, also where another failure
// unwinds.
#pragma once

#include <exception>

#include "comm/work.hpp"

namespace lockstep::train {

// The failure that unwinds is the one to tell of; what the operation throws then is its consequence.
inline void wait_ignoring_errors(comm::Work& work) noexcept {
  try {
    work.wait();
  } catch (const std::exception&) {
  }
}

}  // namespace lockstep::train
