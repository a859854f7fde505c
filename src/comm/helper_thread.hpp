// A thread that runs tasks one after another and sleeps when it has none. It starts with the first task.
#pragma once

#include <atomic>
#include <condition_variable>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <thread>

#include "comm/work.hpp"

namespace lockstep::comm {

class HelperThread {
 public:
  HelperThread() = default;
  ~HelperThread();  // runs what was queued, then ends
  HelperThread(const HelperThread&) = delete;
  HelperThread& operator=(const HelperThread&) = delete;

  // What the task throws comes out of the handle's wait().
  std::shared_ptr<WorkState> enqueue(std::function<void()> task);
  bool idle() const { return pending_.load(std::memory_order_acquire) == 0; }

 private:
  class Task;
  void loop();

  std::mutex mutex_;
  std::condition_variable wake_;
  std::deque<std::shared_ptr<Task>> queue_;
  std::atomic<int> pending_{0};
  bool stop_ = false;
  std::thread thread_;
};

}  // namespace lockstep::comm
