// What a run names and what has no effect there.
#pragma once

#include "config/layers.hpp"
#include "config/run_file.hpp"

namespace lockstep::config {

// Appends to run.origin.notes, a line each: imperfections of `simulate` that nothing lets happen, a share
// beside the curve that takes its place, curves of another type than the run's. Only keys that a file or a
// flag set, to another value than the default, are named.
void add_notes(const Layers& layers, RunFile& run);

}  // namespace lockstep::config
