// A worker's life: attach, train, evaluate, report, leave.
#pragma once

#include <filesystem>

#include "comm/communicator.hpp"
#include "config/run_file.hpp"

namespace lockstep::worker {

struct WorkerPlace {
  std::filesystem::path run_folder;
  int message_fd = -1;  // of the pipe to the launcher
};

// Trains `run` to its end. Rank 0 reports steps and results over the pipe, every rank what its steps waited
// for; every rank leaves its spans in the run folder. Throws RunError or UsageError.
void run_worker(const config::RunFile& run, comm::World& world, const WorkerPlace& place);

}  // namespace lockstep::worker
