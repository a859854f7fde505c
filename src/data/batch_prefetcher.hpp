// Makes the next step's micro-batches on a helper thread while the worker computes this one's.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <exception>
#include <mutex>
#include <optional>
#include <thread>

#include "data/micro_batch.hpp"

namespace lockstep::data {

class BatchPrefetcher {
 public:
  // Steps first_step..end_step-1, as make_step_batch gives them. What check_cut throws. `fill` runs on the
  // helper thread, which sleeps while a finished step waits to be taken.
  BatchPrefetcher(SampleFill fill, const config::RunFile& run, DataRank rank, int64_t first_step,
                  int64_t end_step);
  ~BatchPrefetcher();  // waits for at most the step being made
  BatchPrefetcher(const BatchPrefetcher&) = delete;
  BatchPrefetcher& operator=(const BatchPrefetcher&) = delete;

  // The next step, in order; waits for it. Rethrows what `fill` threw, again on every later call.
  // RunError after the last step.
  StepBatch next();

 private:
  void work();

  const SampleFill fill_;
  const config::RunFile run_;
  const DataRank rank_;
  const int64_t end_step_;
  int64_t next_to_make_;
  int64_t next_to_take_;
  std::optional<StepBatch> ready_;
  std::exception_ptr failure_;
  bool stop_ = false;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::thread thread_;  // last: starts when the rest stands
};

}  // namespace lockstep::data
