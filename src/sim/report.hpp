// What `lockstep simulate` says, and the trace it writes.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "base/json_fwd.hpp"
#include "cost/text.hpp"
#include "parallel/mesh.hpp"
#include "sim/simulate_step.hpp"

namespace lockstep::sim {

// "rank 8  tp0 pp1 dp0"; with cp where there is context parallelism.
std::string rank_name(const parallel::Mesh& mesh, int rank);

cost::StepFigures figures_of(const config::RunFile& run, const StepResult& result);

// The document of `simulate --json`. `memory` is the planner's block (plan::memory_json), which this room
// cannot see. `steps`: seconds of every step; listed when there are several, `result` being their summary.
Json simulate_json(const config::RunFile& run, const StepResult& result, const std::vector<double>& steps,
                   const Json& memory);

// For a person; the memory table (plan::memory_text) goes after it.
std::string simulate_text(const config::RunFile& run, const StepResult& result,
                          const std::vector<double>& steps, const cost::Style& style);

// A process a rank, a thread a stream: Perfetto's own format for a name that ends in .pftrace, else Chrome
// trace event JSON, which Perfetto opens too. RunError when the file cannot be written.
void write_trace(const std::filesystem::path& path, const parallel::Mesh& mesh,
                 const std::vector<observe::SpanFile>& traces);

}  // namespace lockstep::sim
