// One sentence on what a run is, as every command opens with it.
#pragma once

#include <string>

#include "config/run_file.hpp"

namespace lockstep::cli {

std::string layout_text(const config::ParallelConfig& parallel);  // "TP2 x PP2 x DP2"; "one rank"
// "tiny: 857K parameters, TP2 x PP2 x DP2, 1f1b, 8 micro-batches; 2,048 tokens a step"
std::string run_text(const config::RunFile& run);

// How to call the running program again from the current folder: "build/release/lockstep".
std::string program_path();

}  // namespace lockstep::cli
