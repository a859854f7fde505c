// Starts one lockstep-worker per rank on this machine, listens to them, and sees to it that none outlives the
// run: when one dies the others leave their waits at once and end; when the launcher dies the kernel ends
// them (PR_SET_PDEATHSIG).
//
// What a worker gets: `lockstep-worker RUN_FOLDER --arena-fd N --message-fd M`, where N is the run's shared
// memory (comm::SharedArena::attach) and M the pipe for its observe::WorkerMessage lines; RANK, WORLD_SIZE,
// LOCAL_RANK and LOCAL_WORLD_SIZE; one thread for OpenMP and BLAS; a malloc that keeps freed memory. SIGTERM
// means that the run was interrupted.
#pragma once

#include <sys/types.h>

#include <chrono>
#include <filesystem>
#include <functional>
#include <string>

#include "observe/worker_message.hpp"

namespace lockstep::resilience {

struct LaunchPlan {
  std::filesystem::path worker;      // the executable
  std::filesystem::path run_folder;  // exists; worker output goes to logs/rank-N.log in it
  int world_size = 1;
  // From the first failure or an interruption to SIGKILL for whoever still runs.
  std::chrono::milliseconds grace{2000};
  // From a worker's exit with 0 to the run's final message; longer: it left the others in the lurch.
  std::chrono::milliseconds early_exit_limit{10000};
};

// What the launcher tells its caller, from inside launch(). An exception ends all workers and comes out of
// launch().
struct LaunchListener {
  std::function<void(int rank, pid_t pid)> started = {};
  std::function<void(int rank, const observe::WorkerMessage&)> message = {};
  std::function<void(int rank)> ended = {};  // the worker is reaped
};

struct LaunchEnd {
  enum class Kind { finished, failed, interrupted };
  Kind kind = Kind::finished;
  int signal = 0;    // interrupted: SIGINT, SIGTERM or SIGHUP
  int rank = -1;     // failed: the rank that failed first
  std::string text;  // for people, empty when finished: which rank, how, its own words, the end of its log
};

// Runs the workers to their end; none of them exists when it returns or throws. The caller has no thread
// beside its own (never fork after threads). RunError when a worker cannot be started.
LaunchEnd launch(const LaunchPlan& plan, const LaunchListener& listener);

// lockstep-worker beside the running program. UsageError when this build has none.
std::filesystem::path find_worker();

}  // namespace lockstep::resilience
