#include "comm/helper_thread.hpp"

#include <pthread.h>
#include <signal.h>

#include <exception>
#include <utility>

#include "observe/span.hpp"

namespace lockstep::comm {

class HelperThread::Task final : public WorkState {
 public:
  explicit Task(std::function<void()> run) : run_(std::move(run)) {}

  // `pending` goes down before anyone learns that the task is done, so that a waiter then finds the helper
  // idle.
  void run(std::atomic<int>& pending) {
    started_ns_.store(observe::monotonic_ns(), std::memory_order_relaxed);
    std::exception_ptr error;
    try {
      run_();
    } catch (...) {
      error = std::current_exception();
    }
    const int64_t finished = observe::monotonic_ns();
    pending.fetch_sub(1, std::memory_order_acq_rel);
    const std::lock_guard lock(mutex_);
    error_ = error;
    finished_ns_ = finished;
    finished_.notify_all();
  }
  void wait() override {
    std::unique_lock lock(mutex_);
    finished_.wait(lock, [&] { return finished_ns_ != 0; });
    if (error_) std::rethrow_exception(error_);
  }
  bool done() override { return finished_ns() != 0; }
  int64_t started_ns() const override { return started_ns_.load(std::memory_order_relaxed); }
  int64_t finished_ns() const override {
    const std::lock_guard lock(mutex_);
    return finished_ns_;
  }

 private:
  std::function<void()> run_;
  mutable std::mutex mutex_;
  std::condition_variable finished_;
  std::atomic<int64_t> started_ns_{0};
  int64_t finished_ns_ = 0;
  std::exception_ptr error_;
};

namespace {

// Signals belong to the thread that computes, which knows how to stop.
class WithoutSignals {
 public:
  WithoutSignals() {
    sigset_t all;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before_);
  }
  ~WithoutSignals() { pthread_sigmask(SIG_SETMASK, &before_, nullptr); }
  WithoutSignals(const WithoutSignals&) = delete;
  WithoutSignals& operator=(const WithoutSignals&) = delete;

 private:
  sigset_t before_;
};

}  // namespace

HelperThread::~HelperThread() {
  {
    const std::lock_guard lock(mutex_);
    stop_ = true;
  }
  wake_.notify_all();
  if (thread_.joinable()) thread_.join();
}

std::shared_ptr<WorkState> HelperThread::enqueue(std::function<void()> task) {
  auto state = std::make_shared<Task>(std::move(task));
  {
    const std::lock_guard lock(mutex_);
    if (!thread_.joinable()) {
      const WithoutSignals inherited;
      thread_ = std::thread([this] { loop(); });
    }
    queue_.push_back(state);
    pending_.fetch_add(1, std::memory_order_acq_rel);
  }
  wake_.notify_one();
  return state;
}

void HelperThread::loop() {
  for (;;) {
    std::shared_ptr<Task> task;
    {
      std::unique_lock lock(mutex_);
      wake_.wait(lock, [&] { return stop_ || !queue_.empty(); });
      if (queue_.empty()) return;
      task = std::move(queue_.front());
      queue_.pop_front();
    }
    task->run(pending_);
  }
}

}  // namespace lockstep::comm
