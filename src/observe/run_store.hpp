// A run's SQLite file, run.db: the step that was predicted, steps, what every rank waited for in them,
// evaluations, events and facts about the run, written as the run goes on. WAL mode, so that the dashboard
// and the sqlite3 shell can read it meanwhile and a killed writer leaves whole rows.
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "observe/prediction.hpp"
#include "observe/step_record.hpp"
#include "observe/worker_message.hpp"

namespace lockstep::observe {

struct RunEvent {
  double time = 0;   // seconds since 1970, UTC
  std::string kind;  // "start", "evaluation", "skipped", "error", ...
  int rank = -1;     // -1: the launcher
  std::string text;
};

// Every failure (disk full, locked by another program, not a database, another schema) is a RunError that
// names the file and says what to do.
class RunStore {
 public:
  static RunStore create(const std::filesystem::path& path);  // the file must not exist
  // To read alone what create() made: nothing is written, and no right to write is needed.
  static RunStore open(const std::filesystem::path& path);
  RunStore(RunStore&&) noexcept;
  RunStore& operator=(RunStore&&) noexcept;
  ~RunStore();

  // A step written again (a run that went back to a checkpoint) replaces the older row, and its `ranks`
  // theirs: what each rank waited for in this step, as far as it came. `steps`, `eta_seconds` and `trouble`
  // are not kept. A NaN is kept as NULL, SQLite's own rule, and reads back as NaN.
  void append_step(const StepRecord& record, const std::vector<WaitMessage>& ranks = {});
  void append_evaluation(const EvaluationMessage& evaluation);  // likewise
  void append_event(const RunEvent& event);
  void set_prediction(const Prediction& prediction);            // replaces
  void set_meta(std::string_view key, std::string_view value);  // replaces

  std::vector<StepRecord> steps() const;               // ascending
  std::vector<WaitMessage> waits(int64_t step) const;  // ascending ranks
  std::vector<EvaluationMessage> evaluations() const;  // ascending
  std::vector<RunEvent> events() const;                // in the order written
  std::optional<Prediction> prediction() const;        // none: it failed
  std::optional<std::string> meta(std::string_view key) const;

 private:
  struct State;
  explicit RunStore(std::unique_ptr<State> state);
  std::unique_ptr<State> state_;
};

double unix_seconds();  // now

}  // namespace lockstep::observe
