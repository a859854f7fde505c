#include "comm/process_ranks.hpp"

#include <poll.h>
#include <sys/mman.h>

#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <cstring>
#include <utility>

#include "base/error.hpp"

namespace lockstep::comm {
namespace {

// A file in memory, of any length; its first byte says whether an error or a report follows.
class Mail {
 public:
  Mail() : fd_(memfd_create("lockstep-report", MFD_CLOEXEC)) {
    if (fd_ < 0) throw RunError(std::string("memfd_create: ") + std::strerror(errno));
  }
  ~Mail() {
    if (fd_ >= 0) close(fd_);
  }
  Mail(Mail&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}
  Mail& operator=(Mail&&) = delete;

  bool write_all(char kind, const std::string& text) const {
    const std::string all = kind + text;
    for (size_t at = 0; at < all.size();) {
      const ssize_t n = write(fd_, all.data() + at, all.size() - at);
      if (n < 0 && errno != EINTR) return false;
      if (n > 0) at += static_cast<size_t>(n);
    }
    return true;
  }
  std::string read_all() const {
    std::string text(static_cast<size_t>(lseek(fd_, 0, SEEK_END)), '\0');
    const ssize_t n = pread(fd_, text.data(), text.size(), 0);
    text.resize(n < 0 ? 0 : static_cast<size_t>(n));
    return text;
  }

 private:
  int fd_;
};

[[noreturn]] void run_child(const std::shared_ptr<SharedArena>& arena, pid_t parent, int rank,
                            const Mail& mail, const std::function<std::string(World&)>& body) {
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (getppid() != parent) _exit(1);
  bool written = false;
  try {
    LocalWorld world(SharedArena::attach(arena->fd()), rank);
    try {
      written = mail.write_all('r', body(world));
    } catch (const std::exception& e) {
      world.abort(e.what());
      written = mail.write_all('e', e.what());
    }
  } catch (const std::exception& e) {
    written = mail.write_all('e', e.what());
  }
  _exit(written ? 0 : 1);  // without the parent's exit handlers
}

RankOutcome outcome_of(const Mail& mail, int status) {
  const std::string text = mail.read_all();
  if (WIFSIGNALED(status)) return {{}, "killed by signal " + std::to_string(WTERMSIG(status))};
  if (text.empty()) return {{}, "exited with code " + std::to_string(WEXITSTATUS(status))};
  return text[0] == 'r' ? RankOutcome{text.substr(1), {}} : RankOutcome{{}, text.substr(1)};
}

int wait_for(pid_t pid) {
  int status = 0;
  while (waitpid(pid, &status, 0) < 0 && errno == EINTR) {
  }
  return status;
}

// Waits for each as it ends, whichever is first, and marks a killed one dead at once.
std::vector<int> wait_for_all(const std::vector<pid_t>& pids, SharedArena& arena) {
  std::vector<pollfd> alive;
  for (const pid_t pid : pids)
    alive.push_back({static_cast<int>(syscall(SYS_pidfd_open, pid, 0)), POLLIN, 0});
  std::vector<int> statuses(pids.size());
  for (size_t left = pids.size(); left > 0;) {
    if (poll(alive.data(), alive.size(), -1) < 0 && errno != EINTR) break;
    for (size_t r = 0; r < pids.size(); ++r) {
      if (alive[r].fd < 0 || alive[r].revents == 0) continue;
      statuses[r] = wait_for(pids[r]);
      if (WIFSIGNALED(statuses[r]))
        arena.mark_dead(static_cast<int>(r), "killed by signal " + std::to_string(WTERMSIG(statuses[r])));
      close(std::exchange(alive[r].fd, -1));
      --left;
    }
  }
  return statuses;
}

}  // namespace

std::vector<RankOutcome> run_in_processes(int ranks, const std::function<std::string(World&)>& body) {
  const auto arena = SharedArena::create(ranks);
  std::vector<Mail> mails(static_cast<size_t>(ranks));
  std::vector<pid_t> pids;
  const pid_t parent = getpid();
  for (int r = 0; r < ranks; ++r) {
    const pid_t pid = fork();
    if (pid == 0) run_child(arena, parent, r, mails[static_cast<size_t>(r)], body);
    if (pid < 0) {
      const std::string error = std::strerror(errno);
      for (const pid_t started : pids) kill(started, SIGKILL);
      for (const pid_t started : pids) wait_for(started);
      throw RunError("cannot start process " + std::to_string(r) + " of " + std::to_string(ranks) + ": " +
                     error);
    }
    pids.push_back(pid);
  }
  const std::vector<int> statuses = wait_for_all(pids, *arena);
  std::vector<RankOutcome> outcomes;
  for (size_t r = 0; r < pids.size(); ++r) outcomes.push_back(outcome_of(mails[r], statuses[r]));
  return outcomes;
}

}  // namespace lockstep::comm
