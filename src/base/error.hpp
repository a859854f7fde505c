// The two ways a command fails, and the exit codes that go with them.
#pragma once

#include <stdexcept>
#include <string>

namespace lockstep {

// The user's input is wrong: run file, flag, data. Says what to change. Exit code 2, nothing written.
class UsageError : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

// The work itself failed: a worker died, a disk is full, a peer did not come. Exit code 1.
class RunError : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

inline constexpr int exit_ok = 0;
inline constexpr int exit_run_failed = 1;
inline constexpr int exit_usage = 2;

}  // namespace lockstep
