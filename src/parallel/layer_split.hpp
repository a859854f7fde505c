// Which layers each chunk of the pipeline holds.
#pragma once

#include <vector>

#include "config/run_file.hpp"
#include "model/parameters.hpp"

namespace lockstep::parallel {

// By the model's chunks, chunk x stages + stage. `run` has passed config's rules. Every layer is in exactly
// one chunk; a chunk may have none.
//
// "even": as many layers to each, but for first_ and last_stage_less_layers. "cost": each stage's FLOPs, with
// the output matrix's and, on average, those of whole layers computed again, are as even as whole layers
// allow; a stage's layers are dealt evenly to its chunks.
std::vector<model::ChunkContent> split_layers(const config::RunFile& run);

}  // namespace lockstep::parallel
