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
#include "cli/run_means.hpp"
#include "cli/step_assembly.hpp"
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

  // After a run that finished.
  Json result() const;
  std::string summary() const;

 private:
  struct Line {  // that the reader has not taken yet
    std::string text;
    int64_t step = 0;  // the bar's; 0: it stays
    double eta_seconds = -1;
  };

  void predict();
  void check_worth();
  resilience::LaunchEnd launch_workers(const std::filesystem::path& worker);
  void take(int rank, const observe::WorkerMessage& message);
  void take_peak(const observe::MatrixPeak& peak);
  void take_steps(bool as_they_are);  // those that are whole, or whatever came of them
  void take_step(const AssembledStep& step);
  void take_evaluation(const observe::EvaluationMessage& evaluation);
  void take_evaluation_lines(int64_t up_to_step);
  void show_waiting(bool block);
  void check_output() const;  // RunError when lines cannot be written
  void event(const std::string& kind, int rank, const std::string& text);
  void merge_trace();
  std::string kept() const;  // where a run that did not finish left what it did
  std::string peak_text() const;
  std::string prediction_text() const;  // beside what was measured; empty: there is none

  const config::RunFile& run_;
  observe::RunFolder folder_;
  resilience::RunLock lock_;
  std::FILE* out_;
  observe::RunStore store_;
  observe::Progress progress_;
  int ready_ = 0;
  StepAssembly assembly_;
  std::vector<observe::StepRecord> steps_;
  RunMeans means_;
  std::deque<observe::EvaluationMessage> evaluations_;  // whose step's line has not come yet
  std::deque<Line> waiting_;
  std::optional<observe::Prediction> prediction_;
  std::optional<observe::MatrixPeak> peak_;
  std::optional<observe::FinalMessage> final_;
  bool traced_ = false;
};

}  // namespace lockstep::cli
