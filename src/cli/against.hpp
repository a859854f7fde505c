// A simulated step beside the steps of a real run, part by part: simulate --against RUN_FOLDER.
#pragma once

#include <array>
#include <cstdint>
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

// The steps of a real run, read and found whole.
struct MeasuredRun {
  static constexpr size_t part_count = 10;

  std::string directory;
  double seconds = 0;                 // the middle of the steady steps'
  int64_t first_step = 0, steps = 0;  // which those are: from first_step on, so many
  double traced_seconds = 0;          // mean of the traced steps, which the parts add up to
  int64_t first_traced = 0, traced = 0;
  std::array<double, part_count> parts{};  // as in Comparison::parts
};

// Seconds of a step, mean over ranks.
struct ComparedPart {
  std::string_view name;
  std::string_view meaning;
  double predicted = 0;
  double measured = 0;
};

struct Comparison {
  std::string cluster;  // whose figures predicted
  double stretch = 1;   // of kernels on shared cores, see sim::SharedStep
  double predicted_seconds = 0;
  MeasuredRun measured;
  std::vector<ComparedPart> parts;
};

// `run` and its `programs` are what is simulated. UsageError where the run in `folder` trained another model,
// layout or batch (it names what differs) or left no trace, RunError where its files cannot be read or hold
// what no run leaves (it names file and step).
MeasuredRun read_measured_run(const config::RunFile& run, const std::vector<parallel::Program>& programs,
                              const std::filesystem::path& folder);

// Kernels are told apart by the names that the program gives its ops, so a part means the same on both sides;
// waits are the workers' own account.
Comparison compare(const config::RunFile& run, const std::vector<parallel::Program>& programs,
                   const sim::SharedStep& predicted, const MeasuredRun& measured);

Json comparison_json(const Comparison& comparison);
std::string comparison_text(const Comparison& comparison, const cost::Style& style);

}  // namespace lockstep::cli
