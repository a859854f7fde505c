#include "resilience/worker_process.hpp"

#include <fcntl.h>
#include <linux/close_range.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <cstring>
#include <iterator>
#include <stdexcept>

#include "base/error.hpp"
#include "resilience/signal_descriptor.hpp"

namespace lockstep::resilience {

namespace {

void refuse_threads() {
  const std::filesystem::directory_iterator tasks("/proc/self/task");
  if (std::distance(begin(tasks), end(tasks)) != 1) {
    throw std::logic_error("workers must be started before any thread is");
  }
}

// Our environment with `changes` in place.
std::vector<std::string> environment_with(const std::vector<std::pair<std::string, std::string>>& changes) {
  std::vector<std::string> out;
  for (char** entry = environ; *entry != nullptr; ++entry) {
    const std::string_view text(*entry);
    const std::string_view name = text.substr(0, text.find('='));
    bool replaced = false;
    for (const auto& change : changes) replaced = replaced || change.first == name;
    if (!replaced) out.emplace_back(text);
  }
  for (const auto& [name, value] : changes) out.push_back(name + "=" + value);
  return out;
}

std::vector<char*> pointers(std::vector<std::string>& texts) {
  std::vector<char*> out;
  for (std::string& text : texts) out.push_back(text.data());
  out.push_back(nullptr);
  return out;
}

// Everything the child needs, made before the fork: after it, only system calls.
struct Prepared {
  std::vector<std::string> argument_texts, environment_texts;
  std::vector<char*> arguments, environment;
  int null_input = -1;
  int log = -1;

  explicit Prepared(const WorkerCommand& command)
      : argument_texts{command.program.string()}, environment_texts(environment_with(command.environment)) {
    argument_texts.insert(argument_texts.end(), command.arguments.begin(), command.arguments.end());
    arguments = pointers(argument_texts);
    environment = pointers(environment_texts);
    null_input = open("/dev/null", O_RDONLY | O_CLOEXEC);
    log = open(command.log.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0666);
    if (null_input < 0 || log < 0) {
      const int error = errno;
      close_all();
      throw RunError("cannot open a worker's log " + command.log.string() + ": " + std::strerror(error));
    }
  }
  ~Prepared() { close_all(); }
  Prepared(const Prepared&) = delete;
  Prepared& operator=(const Prepared&) = delete;

  void close_all() {
    if (null_input >= 0) close(null_input);
    if (log >= 0) close(log);
  }
};

[[noreturn]] void become_worker(const WorkerCommand& command, Prepared& prepared, pid_t launcher) {
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (getppid() != launcher) _exit(127);  // it died before the line above: nobody will send the signal
  dup2(prepared.null_input, STDIN_FILENO);
  dup2(prepared.log, STDOUT_FILENO);
  dup2(prepared.log, STDERR_FILENO);
  close_range(3, ~0u, CLOSE_RANGE_CLOEXEC);  // whatever our own parent left open is not for workers
  for (const int fd : command.inherited) fcntl(fd, F_SETFD, 0);
  for (int number = 1; number < NSIG; ++number) std::signal(number, SIG_DFL);
  for (const int number : {SIGINT, SIGHUP, SIGPIPE}) std::signal(number, SIG_IGN);
  sigset_t none;
  sigemptyset(&none);
  sigprocmask(SIG_SETMASK, &none, nullptr);
  execve(prepared.arguments[0], prepared.arguments.data(), prepared.environment.data());
  const char* why = std::strerror(errno);
  for (const char* part :
       {"cannot start ", static_cast<const char*>(prepared.arguments[0]), ": ", why, "\n"}) {
    if (write(STDERR_FILENO, part, std::strlen(part)) < 0) break;
  }
  _exit(127);
}

WorkerEnd end_of(int status) {
  if (WIFSIGNALED(status)) return {0, WTERMSIG(status)};
  return {WEXITSTATUS(status), 0};
}

}  // namespace

std::string describe(const WorkerEnd& end) {
  if (end.signal != 0) {
    return "was killed by signal " + std::to_string(end.signal) + " (" + signal_name(end.signal) + ")";
  }
  return "ended with exit code " + std::to_string(end.exit_code);
}

WorkerProcess::WorkerProcess(const WorkerCommand& command) {
  refuse_threads();
  Prepared prepared(command);
  const pid_t launcher = getpid();
  pid_ = fork();
  if (pid_ < 0) throw RunError(std::string("cannot start a worker: fork: ") + std::strerror(errno));
  if (pid_ == 0) become_worker(command, prepared, launcher);
}

WorkerProcess::WorkerProcess(WorkerProcess&& other) noexcept
    : pid_(std::exchange(other.pid_, -1)), end_(other.end_) {}

WorkerProcess::~WorkerProcess() {
  if (!running()) return;
  kill(pid_, SIGKILL);
  while (waitpid(pid_, nullptr, 0) < 0 && errno == EINTR) {
  }
}

bool WorkerProcess::reap() {
  if (!running()) return false;
  int status = 0;
  const pid_t found = waitpid(pid_, &status, WNOHANG);
  if (found == 0 || (found < 0 && errno == EINTR)) return false;
  // ECHILD: someone else reaped our child. How it ended is then unknown, which is no success.
  end_ = found == pid_ ? end_of(status) : WorkerEnd{127, 0};
  return true;
}

void WorkerProcess::signal(int number) {
  if (running()) kill(pid_, number);
}

}  // namespace lockstep::resilience
