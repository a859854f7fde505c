#include "data/batch_prefetcher.hpp"

#include <fmt/format.h>

#include <utility>

#include "base/error.hpp"

namespace lockstep::data {

BatchPrefetcher::BatchPrefetcher(SampleFill fill, const config::RunFile& run, DataRank rank,
                                 int64_t first_step, int64_t end_step)
    : fill_(std::move(fill)),
      run_((check_cut(run, rank), run)),
      rank_(rank),
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
      made = make_step_batch(fill_, run_, rank_, next_to_make_);
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
