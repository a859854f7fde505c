// Where workers' standard output and error go: RUN_FOLDER/logs/rank-N.log.
#pragma once

#include <filesystem>
#include <string>

namespace lockstep::resilience {

std::filesystem::path worker_log(const std::filesystem::path& run_folder, int rank);

// The folder of the logs: made at the start; at the end, logs that stayed empty are removed, and the folder
// with them when nothing is left. RunError when it cannot be made.
class WorkerLogs {
 public:
  explicit WorkerLogs(const std::filesystem::path& run_folder);
  ~WorkerLogs();
  WorkerLogs(const WorkerLogs&) = delete;
  WorkerLogs& operator=(const WorkerLogs&) = delete;

 private:
  std::filesystem::path folder_;
};

// The last lines of a file, at most `lines` and 4 KiB; empty when there is nothing.
std::string last_lines(const std::filesystem::path& file, int lines);

}  // namespace lockstep::resilience
