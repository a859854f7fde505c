// What a trace of simulated ranks will take, told before it is made.
#pragma once

#include <cstdint>
#include <filesystem>
#include <vector>

#include "parallel/layout.hpp"
#include "parallel/program.hpp"

namespace lockstep::cli {

struct TraceSize {
  int64_t ranks = 0, steps = 0;
  double spans = 0;  // of all ranks and steps

  double memory_bytes() const;                                 // while they are simulated and written
  double file_bytes(const std::filesystem::path& file) const;  // by the format of that name; about
};

TraceSize trace_size(const parallel::Layout& layout, const std::vector<parallel::Program>& programs,
                     const std::vector<int>& ranks, int64_t steps);

// UsageError when this machine has not as much memory free, or the place of `file` not as much room.
void check_trace_size(const TraceSize& size, const std::filesystem::path& file);

}  // namespace lockstep::cli
