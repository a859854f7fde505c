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

// The started processes. Whatever goes wrong here, none of them stays.
class Children {
 public:
  ~Children() {
    for (const Child& child : children_) {
      if (child.pid != 0) kill(child.pid, SIGKILL);
      if (child.pid != 0) reap(child.pid);
      if (child.pidfd >= 0) close(child.pidfd);
    }
  }
  Children() = default;
  Children(const Children&) = delete;
  Children& operator=(const Children&) = delete;

  void add(pid_t pid) {
    children_.push_back({pid, -1});
    Child& child = children_.back();
    child.pidfd = static_cast<int>(syscall(SYS_pidfd_open, pid, 0));
    if (child.pidfd < 0) throw RunError(std::string("cannot watch a process: ") + std::strerror(errno));
  }

  // Waits for each as it ends, whichever is first; ended(rank, status) is told at once.
  void wait_for_all(const std::function<void(size_t, int)>& ended) {
    std::vector<pollfd> alive;
    for (const Child& child : children_) alive.push_back({child.pidfd, POLLIN, 0});
    for (size_t left = children_.size(); left > 0;) {
      if (poll(alive.data(), alive.size(), -1) < 0) {
        if (errno == EINTR) continue;
        throw RunError(std::string("cannot wait for processes: ") + std::strerror(errno));
      }
      for (size_t r = 0; r < alive.size(); ++r) {
        if (alive[r].fd < 0 || alive[r].revents == 0) continue;
        alive[r].fd = -1;  // poll skips it from now on
        --left;
        ended(r, reap(std::exchange(children_[r].pid, 0)));
      }
    }
  }

 private:
  struct Child {
    pid_t pid;  // 0: has been waited for
    int pidfd;
  };
  static int reap(pid_t pid) {
    int status = 0;
    while (waitpid(pid, &status, 0) < 0 && errno == EINTR) {
    }
    return status;
  }
  std::vector<Child> children_;
};

}  // namespace

std::vector<RankOutcome> run_in_processes(int ranks, const std::function<std::string(World&)>& body) {
  const auto arena = SharedArena::create(ranks);
  std::vector<Mail> mails(static_cast<size_t>(ranks));
  Children children;
  const pid_t parent = getpid();
  for (int r = 0; r < ranks; ++r) {
    const pid_t pid = fork();
    if (pid == 0) run_child(arena, parent, r, mails[static_cast<size_t>(r)], body);
    if (pid < 0)
      throw RunError("cannot start process " + std::to_string(r) + " of " + std::to_string(ranks) + ": " +
                     std::strerror(errno));
    children.add(pid);
  }
  std::vector<RankOutcome> outcomes(mails.size());
  children.wait_for_all([&](size_t r, int status) {
    outcomes[r] = outcome_of(mails[r], status);
    // One that said why it failed has marked itself; this is for those that could not.
    if (!outcomes[r].error.empty()) arena->mark_dead(static_cast<int>(r), outcomes[r].error);
  });
  return outcomes;
}

}  // namespace lockstep::comm
