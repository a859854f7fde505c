// Tells a run that goes on from one whose launcher died: the launcher holds a lock on the run folder, and the
// kernel lets go of it when the launcher ends, however it ends.
#pragma once

#include <filesystem>

namespace lockstep::resilience {

class RunLock {
 public:
  // RunError when another launcher holds the folder, or it cannot be opened.
  explicit RunLock(const std::filesystem::path& run_folder);
  ~RunLock();
  RunLock(const RunLock&) = delete;
  RunLock& operator=(const RunLock&) = delete;

  static bool held(const std::filesystem::path& run_folder);  // by any process, this one included

 private:
  int fd_ = -1;
};

}  // namespace lockstep::resilience
