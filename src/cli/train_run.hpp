// One run of `lockstep train`, from the start of its workers to the summary: prints and stores what they
// report.
#pragma once

#include <cstdio>
#include <deque>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "base/json_fwd.hpp"
#include "config/run_file.hpp"
#include "observe/progress.hpp"
#include "observe/run_folder.hpp"
#include "observe/run_store.hpp"
#include "observe/worker_message.hpp"
#include "resilience/launcher.hpp"
#include "resilience/run_lock.hpp"

namespace lockstep::cli {

class TrainRun {
 public:
  // Step lines go to `out`.
  TrainRun(const config::RunFile& run, observe::RunFolder folder, std::FILE* out);

  // RunError when the run failed; what was done by then is kept in the run folder, and the message says
  // where.
  resilience::LaunchEnd go(const std::filesystem::path& worker);

  // After a run that finished. `tokens_per_second` is the median over steps after the third, NaN when there
  // are none.
  double tokens_per_second() const;
  Json result() const;
  std::string summary() const;

 private:
  resilience::LaunchEnd launch_workers(const std::filesystem::path& worker);
  void take(int rank, const observe::WorkerMessage& message);
  void take_step(const observe::StepRecord& record);
  void show_waiting(bool block);  // step lines that the reader has not taken yet
  void check_output() const;      // RunError when they cannot be written
  void event(const std::string& kind, int rank, const std::string& text);
  void merge_trace();
  std::string kept() const;  // where a run that did not finish left what it did

  const config::RunFile& run_;
  observe::RunFolder folder_;
  resilience::RunLock lock_;
  std::FILE* out_;
  observe::RunStore store_;
  observe::Progress progress_;
  int ready_ = 0;
  std::vector<observe::StepRecord> steps_;
  std::deque<observe::StepRecord> waiting_;
  std::optional<observe::FinalMessage> final_;
  bool traced_ = false;
};

}  // namespace lockstep::cli
