// What `lockstep calibrate` measures, piece by piece, and the figures that come out.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "cli/kernel_timing.hpp"
#include "config/run_file.hpp"

namespace lockstep::cli {

struct CalibrationPlan {
  std::vector<int> workers = {2, 4, 8};  // ascending: sizes of the groups whose collectives are timed
  config::Dtype dtype = config::Dtype::bf16;
  int cores = 1;
  bool quick = false;
  std::filesystem::path worker;  // lockstep-worker
};

// A run that was timed, priced with the figures that came out of all.
struct CheckedRun {
  std::string what;      // "hidden 128, 512 tokens, 2 workers"
  double measured = 0;   // seconds of its middle step
  double predicted = 0;  //
};

struct Calibration {
  config::ClusterConfig cluster;
  std::vector<CheckedRun> runs;
  size_t kernels = 0;        // samples
  std::string worker_build;  // 16 hex digits over lockstep-worker's bytes

  double worst() const;  // relative error of the runs, without sign
};

struct CalibrationEnd {
  Calibration found;
  int signal = 0;  // that interrupted it; then nothing was found, and nothing is left
};

// Shows progress on standard error. One minute or two on two cores, seconds with `quick`. RunError when a
// worker or a process fails.
CalibrationEnd measure_machine(const CalibrationPlan& plan);

}  // namespace lockstep::cli
