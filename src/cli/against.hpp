// A simulated step beside the steps of a real run, part by part: simulate --against RUN_FOLDER.
#pragma once

#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

#include "base/json_fwd.hpp"
#include "config/run_file.hpp"
#include "cost/text.hpp"
#include "parallel/program.hpp"
#include "sim/shared_cores.hpp"

namespace lockstep::cli {

// Seconds of a step, mean over ranks.
struct ComparedPart {
  std::string_view name;
  std::string_view meaning;
  double predicted = 0;
  double measured = 0;
};

struct Comparison {
  std::string cluster;        // whose figures predicted
  std::string run_directory;  //
  double stretch = 1;         // of kernels on shared cores, see sim::SharedStep
  double predicted_seconds = 0;
  double measured_seconds = 0;        // the middle of the steady steps'
  int64_t first_step = 0, steps = 0;  // which those are: from first_step on, so many
  double traced_seconds = 0;          // mean of the traced steps, which the measured parts add up to
  int64_t first_traced = 0, traced = 0;
  std::vector<ComparedPart> parts;
};

// `run` and its `programs` are what was simulated. Kernels are told apart by the names that the program gives
// its ops, so a part means the same on both sides; waits are the workers' own account. UsageError where the
// run in `folder` trained another model, layout or batch (it names what differs) or left no trace, RunError
// where its files cannot be read.
Comparison compare(const config::RunFile& run, const std::vector<parallel::Program>& programs,
                   const sim::SharedStep& predicted, const std::filesystem::path& folder);

Json comparison_json(const Comparison& comparison);
std::string comparison_text(const Comparison& comparison, const cost::Style& style);

}  // namespace lockstep::cli
