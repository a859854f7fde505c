// Makes the next step's micro-batches on a helper thread while the worker computes this one's.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <exception>
#include <functional>
#include <mutex>
#include <optional>
#include <span>
#include <thread>
#include <vector>

namespace lockstep::data {

struct MicroBatch {
  std::vector<int64_t> inputs;   // [micro_batch, sequence]
  std::vector<int64_t> targets;  // [micro_batch, sequence]
};

struct StepBatch {
  int64_t step = 0;  // 0 is the first
  std::vector<MicroBatch> micro_batches;
};

// How a step's global batch is cut. Logical replica r of `replicas` takes samples
// [r * global_batch / replicas, (r + 1) * global_batch / replicas), cut into micro-batches in order.
struct BatchCut {
  int64_t global_batch = 0;  // sequences
  int64_t micro_batch = 0;   // sequences
  int64_t sequence = 0;      // tokens
  int replica = 0;
  int replicas = 1;
};

// Fills samples first..first+n-1 of the run, inputs and targets each [n, sequence]; Sampler::fill is one.
using SampleFill =
    std::function<void(int64_t first, int64_t n, std::span<int64_t> inputs, std::span<int64_t> targets)>;

// One step's micro-batches, made now, in this thread.
StepBatch make_step_batch(const SampleFill& fill, const BatchCut& cut, int64_t step);

class BatchPrefetcher {
 public:
  // Steps first_step..end_step-1. UsageError when the cut does not divide. `fill` runs on the helper thread,
  // which sleeps while a finished step waits to be taken.
  BatchPrefetcher(SampleFill fill, const BatchCut& cut, int64_t first_step, int64_t end_step);
  ~BatchPrefetcher();  // waits for at most the step being made
  BatchPrefetcher(const BatchPrefetcher&) = delete;
  BatchPrefetcher& operator=(const BatchPrefetcher&) = delete;

  // The next step, in order; waits for it. Rethrows what `fill` threw, again on every later call.
  // RunError after the last step.
  StepBatch next();

 private:
  void work();

  const SampleFill fill_;
  const BatchCut cut_;
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
