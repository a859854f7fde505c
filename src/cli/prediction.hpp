// A run's step as `lockstep simulate` has it, for commands that set it beside a step that was taken.
#pragma once

#include <set>
#include <string>
#include <vector>

#include "config/run_file.hpp"
#include "observe/prediction.hpp"
#include "observe/step_record.hpp"

namespace lockstep::cli {

// The run file with `overrides` and the figures of --cluster FILE (empty: not given). Notes on what has no
// effect go to standard error. `unchosen`: keys that are still to be chosen (config/load.hpp).
config::RunFile load_modelled_run(const std::string& file, std::vector<std::string> overrides,
                                  const std::string& cluster, const std::set<std::string>& unchosen = {});

// Whose figures a run is modelled with: "preset local", or the file that they stand in (a cluster file, or
// the run file itself when it names them).
std::string cluster_name(const config::RunFile& run);

// One step without jitter. Throws what the simulator throws, and RunError when it takes no finite time.
observe::Prediction predict_step(const config::RunFile& run);

// The first step that is like the one that is predicted: earlier ones warm caches up or have smaller batches.
int64_t first_steady_step(const config::TrainConfig& train);
// The middle of the steps' seconds from `first` on, skipped ones left out; NaN without any.
double median_step_seconds(const std::vector<observe::StepRecord>& steps, int64_t first);

// "3.1 % less than measured": of a predicted time.
std::string off_by(double predicted, double measured);

}  // namespace lockstep::cli
