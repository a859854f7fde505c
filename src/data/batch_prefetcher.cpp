#include "data/batch_prefetcher.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "base/error.hpp"

namespace lockstep::data {
namespace {

void check(const BatchCut& cut) {
  if (cut.sequence < 1 || cut.micro_batch < 1 || cut.global_batch < 1 || cut.replicas < 1) {
    throw UsageError(
        fmt::format("train.sequence = {}, parallel.micro_batch = {}, train.global_batch = {}, {} replicas: "
                    "each must be 1 or more.",
                    cut.sequence, cut.micro_batch, cut.global_batch, cut.replicas));
  }
  if (cut.replica < 0 || cut.replica >= cut.replicas) {
    throw UsageError(fmt::format("replica {} is outside the run's {}.", cut.replica, cut.replicas));
  }
  const int64_t unit = cut.micro_batch * cut.replicas;
  if (cut.global_batch % unit != 0) {
    const int64_t nearest = std::max<int64_t>((cut.global_batch + unit / 2) / unit, 1) * unit;
    throw UsageError(fmt::format(
        "train.global_batch = {}: {} replicas with micro-batches of {} need a multiple of {}; the "
        "nearest is {}.",
        cut.global_batch, cut.replicas, cut.micro_batch, unit, nearest));
  }
}

}  // namespace

StepBatch make_step_batch(const SampleFill& fill, const BatchCut& cut, int64_t step) {
  check(cut);
  const int64_t samples = cut.global_batch / cut.replicas;
  const int64_t begin = step * cut.global_batch + cut.replica * samples;
  StepBatch batch;
  batch.step = step;
  for (int64_t first = begin; first < begin + samples; first += cut.micro_batch) {
    MicroBatch& micro_batch = batch.micro_batches.emplace_back();
    micro_batch.inputs.resize(static_cast<size_t>(cut.micro_batch * cut.sequence));
    micro_batch.targets.resize(micro_batch.inputs.size());
    fill(first, cut.micro_batch, micro_batch.inputs, micro_batch.targets);
  }
  return batch;
}

BatchPrefetcher::BatchPrefetcher(SampleFill fill, const BatchCut& cut, int64_t first_step, int64_t end_step)
    : fill_(std::move(fill)),
      cut_((check(cut), cut)),
      end_step_(end_step),
      next_to_make_(first_step),
      next_to_take_(first_step),
      thread_([this] { work(); }) {}

BatchPrefetcher::~BatchPrefetcher() {
  {
    const std::lock_guard lock(mutex_);
    stop_ = true;
  }
  changed_.notify_all();
  thread_.join();
}

void BatchPrefetcher::work() {
  for (;;) {
    {
      std::unique_lock lock(mutex_);
      changed_.wait(lock, [this] { return stop_ || !ready_; });
      if (stop_ || next_to_make_ >= end_step_) return;
    }
    std::optional<StepBatch> made;
    std::exception_ptr failure;
    try {
      made = make_step_batch(fill_, cut_, next_to_make_);
    } catch (...) {
      failure = std::current_exception();
    }
    const std::lock_guard lock(mutex_);
    ++next_to_make_;
    ready_ = std::move(made);
    failure_ = failure;
    changed_.notify_all();
    if (failure) return;
  }
}

StepBatch BatchPrefetcher::next() {
  std::unique_lock lock(mutex_);
  if (next_to_take_ >= end_step_)
    throw RunError(fmt::format("data: there is no step {} in this run", next_to_take_));
  changed_.wait(lock, [this] { return ready_ || failure_; });
  if (failure_) std::rethrow_exception(failure_);
  StepBatch batch = std::move(*ready_);
  ready_.reset();
  ++next_to_take_;
  lock.unlock();
  changed_.notify_all();
  return batch;
}

}  // namespace lockstep::data
