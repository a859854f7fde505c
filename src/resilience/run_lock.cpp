#include "resilience/run_lock.hpp"

#include <fcntl.h>
#include <sys/file.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "base/error.hpp"

namespace lockstep::resilience {

RunLock::RunLock(const std::filesystem::path& run_folder)
    : fd_(open(run_folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC)) {
  if (fd_ >= 0 && flock(fd_, LOCK_EX | LOCK_NB) == 0) return;
  const int error = errno;
  if (fd_ >= 0) close(fd_);
  throw RunError(error == EWOULDBLOCK ? run_folder.string() + ": another process runs in this folder"
                                      : "cannot lock " + run_folder.string() + ": " + std::strerror(error));
}

RunLock::~RunLock() { close(fd_); }

bool RunLock::held(const std::filesystem::path& run_folder) {
  const int fd = open(run_folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (fd < 0) return false;
  const bool taken = flock(fd, LOCK_EX | LOCK_NB) != 0 && errno == EWOULDBLOCK;
  close(fd);
  return taken;
}

}  // namespace lockstep::resilience
