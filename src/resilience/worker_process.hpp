// One worker process: started by fork and exec, gone at the latest when its owner goes.
#pragma once

#include <sys/types.h>

#include <filesystem>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace lockstep::resilience {

struct WorkerCommand {
  std::filesystem::path program;
  std::vector<std::string> arguments;                            // without the program's name
  std::vector<std::pair<std::string, std::string>> environment;  // added to ours, or replacing
  std::vector<int> inherited;  // descriptors that stay open in the worker, under the same numbers
  std::filesystem::path log;   // takes its standard output and error, appended
};

// How a process ended: an exit code, or the signal that killed it.
struct WorkerEnd {
  int exit_code = 0;
  int signal = 0;  // 0: it exited
  bool good() const { return exit_code == 0 && signal == 0; }
};
std::string describe(const WorkerEnd& end);  // "was killed by signal 9 (SIGKILL)", "ended with exit code 3"

class WorkerProcess {
 public:
  // The worker dies with the thread that starts it (PR_SET_PDEATHSIG), ignores SIGINT, SIGHUP and SIGPIPE
  // (the launcher decides when a run ends), has every other signal at its default, and reads nothing from
  // standard input. A program that cannot be executed shows as exit code 127 with the reason in the log. The
  // process must have one thread only (std::logic_error otherwise: a fork would copy others' locks);
  // RunError when there is no room for another process.
  explicit WorkerProcess(const WorkerCommand& command);
  ~WorkerProcess();  // SIGKILL to a worker that still runs, and waits for its end
  WorkerProcess(WorkerProcess&& other) noexcept;
  WorkerProcess& operator=(WorkerProcess&&) = delete;

  pid_t pid() const { return pid_; }
  const std::optional<WorkerEnd>& end() const { return end_; }
  bool running() const { return pid_ > 0 && !end_; }
  bool reap();              // without waiting; true when it has just been found ended
  void signal(int number);  // nothing when it has ended: its pid may be another's by then

 private:
  pid_t pid_ = -1;
  std::optional<WorkerEnd> end_;
};

}  // namespace lockstep::resilience
