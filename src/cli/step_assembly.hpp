// Puts steps together from what the workers send of them: rank 0's record, and every rank's waits.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <vector>

#include "observe/step_record.hpp"
#include "observe/worker_message.hpp"

namespace lockstep::cli {

struct AssembledStep {
  observe::StepRecord record;  // with the mean of the waits and the fullest worker, when all came
  std::vector<observe::WaitMessage> ranks;  // ascending ranks, as many as came
};

class StepAssembly {
 public:
  explicit StepAssembly(size_t ranks) : ranks_(ranks) {}

  // What comes of a step that was given out already is dropped.
  void add(const observe::StepRecord& record);
  void add(const observe::WaitMessage& waits);

  // The earliest step that was not given out yet, once all of it has come.
  std::optional<AssembledStep> next();
  // When nothing more will come: the earliest step with a record, whatever its waits.
  std::optional<AssembledStep> next_as_it_is();

 private:
  struct Parts {
    std::optional<observe::StepRecord> record;
    std::map<int, observe::WaitMessage> waits;  // by rank
  };
  AssembledStep take_first();

  size_t ranks_;
  int64_t given_out_ = 0;           // the last step given out
  std::map<int64_t, Parts> parts_;  // by step
};

}  // namespace lockstep::cli
