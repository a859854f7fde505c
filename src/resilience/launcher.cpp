#include "resilience/launcher.hpp"

#include <fcntl.h>
#include <poll.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <cstring>
#include <memory>
#include <optional>
#include <vector>

#include "base/error.hpp"
#include "comm/local_world.hpp"
#include "resilience/signal_descriptor.hpp"
#include "resilience/worker_log.hpp"
#include "resilience/worker_process.hpp"

namespace lockstep::resilience {

namespace {

using Clock = std::chrono::steady_clock;
using Kind = LaunchEnd::Kind;

class Descriptor {
 public:
  explicit Descriptor(int fd = -1) : fd_(fd) {}
  Descriptor(Descriptor&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}
  Descriptor& operator=(Descriptor&& other) noexcept {
    std::swap(fd_, other.fd_);
    return *this;
  }
  ~Descriptor() { reset(); }
  void reset() {
    if (fd_ >= 0) close(fd_);
    fd_ = -1;
  }
  int get() const { return fd_; }

 private:
  int fd_;
};

// The default action for the time of the launch: an inherited SIG_IGN would let the kernel reap our workers
// unseen.
class DefaultChildSignal {
 public:
  DefaultChildSignal() : before_(std::signal(SIGCHLD, SIG_DFL)) {}
  ~DefaultChildSignal() { std::signal(SIGCHLD, before_); }
  DefaultChildSignal(const DefaultChildSignal&) = delete;
  DefaultChildSignal& operator=(const DefaultChildSignal&) = delete;

 private:
  void (*before_)(int);
};

struct Worker {
  WorkerProcess process;
  Descriptor pipe;
  observe::LineReader lines = observe::LineReader();
  std::string error = {};  // its own words
};

// Two descriptors for both ends; only the worker's is inherited, and only by that worker.
std::pair<Descriptor, Descriptor> message_pipe() {
  int ends[2];
  if (pipe2(ends, O_CLOEXEC) != 0) {
    throw RunError(std::string("cannot make a worker's message pipe: ") + std::strerror(errno));
  }
  fcntl(ends[0], F_SETFL, O_NONBLOCK);
  return {Descriptor(ends[0]), Descriptor(ends[1])};
}

std::vector<std::pair<std::string, std::string>> worker_environment(int rank, int world_size) {
  const std::string r = std::to_string(rank), n = std::to_string(world_size);
  std::vector<std::pair<std::string, std::string>> out = {
      {"RANK", r},
      {"WORLD_SIZE", n},
      {"LOCAL_RANK", r},
      {"LOCAL_WORLD_SIZE", n},
      {"OMP_NUM_THREADS", "1"},
      {"OPENBLAS_NUM_THREADS", "1"},
      {"MKL_NUM_THREADS", "1"},
  };
  // Training on CPU is bound by page faults until freed memory is kept. A user's own setting stands.
  for (const auto& [name, value] :
       {std::pair{"MALLOC_TRIM_THRESHOLD_", "2147483648"}, std::pair{"MALLOC_MMAP_THRESHOLD_", "2147483648"},
        std::pair{"MALLOC_ARENA_MAX", "1"}}) {
    if (getenv(name) == nullptr) out.emplace_back(name, value);
  }
  return out;
}

class Launch {
 public:
  Launch(const LaunchPlan& plan, const LaunchListener& listener)
      : plan_(plan),
        listener_(listener),
        signals_({SIGCHLD, SIGINT, SIGTERM, SIGHUP}),
        arena_(comm::SharedArena::create(plan.world_size)) {}

  LaunchEnd run() {
    for (int rank = 0; rank < plan_.world_size; ++rank) start(rank);
    while (any_running()) {
      wait();
      // Before reap(): a worker that ends after it leaves its SIGCHLD pending for the next wait().
      const std::vector<int> signals = signals_.take();
      for (int rank = 0; rank < plan_.world_size; ++rank) read_messages(rank);
      reap();
      for (const int number : signals) {
        if (number != SIGCHLD) interrupt(number);
      }
      keep_deadlines();
    }
    if (end_.kind == Kind::finished && !final_seen_) fail(0, "the workers ended without a result");
    if (end_.kind == Kind::failed) describe_failure();
    return end_;
  }

 private:
  void start(int rank) {
    auto [read_end, write_end] = message_pipe();
    WorkerCommand command;
    command.program = plan_.worker;
    command.arguments = {plan_.run_folder.string(), "--arena-fd", std::to_string(arena_->fd()),
                         "--message-fd", std::to_string(write_end.get())};
    command.environment = worker_environment(rank, plan_.world_size);
    command.inherited = {arena_->fd(), write_end.get()};
    command.log = worker_log(plan_.run_folder, rank);
    workers_.push_back({WorkerProcess(command), std::move(read_end)});
    if (listener_.started) listener_.started(rank, workers_.back().process.pid());
  }

  Worker& worker(int rank) { return workers_[static_cast<size_t>(rank)]; }

  bool any_running() const {
    return std::any_of(workers_.begin(), workers_.end(), [](const Worker& w) { return w.process.running(); });
  }

  // Until something can be read, a signal came, or a deadline is reached.
  void wait() {
    std::vector<pollfd> watched = {{signals_.fd(), POLLIN, 0}};
    for (const Worker& w : workers_) {
      if (w.pipe.get() >= 0) watched.push_back({w.pipe.get(), POLLIN, 0});
    }
    int milliseconds = -1;
    for (const auto& deadline : {kill_at_, early_at_}) {
      if (!deadline) continue;
      const auto left = std::chrono::ceil<std::chrono::milliseconds>(*deadline - Clock::now()).count();
      const int bounded = static_cast<int>(std::clamp<int64_t>(left, 0, 1'000'000));
      milliseconds = milliseconds < 0 ? bounded : std::min(milliseconds, bounded);
    }
    poll(watched.data(), watched.size(), milliseconds);
  }

  // Everything that lies in a worker's pipe now.
  void read_messages(int rank) {
    Worker& w = worker(rank);
    try {
      while (w.pipe.get() >= 0) {
        pollfd watched{w.pipe.get(), POLLIN, 0};
        if (poll(&watched, 1, 0) <= 0) return;
        if (!w.lines.read_from(w.pipe.get())) w.pipe.reset();
        while (const auto line = w.lines.next()) take(rank, observe::decode(*line));
      }
    } catch (const RunError& error) {
      if (in_listener_) throw;
      w.pipe.reset();
      w.error = error.what();
      fail(rank, w.error);
    }
  }

  void take(int rank, const observe::WorkerMessage& message) {
    if (std::holds_alternative<observe::FinalMessage>(message)) {
      final_seen_ = true;
      early_at_.reset();
    }
    if (const auto* error = std::get_if<observe::ErrorMessage>(&message)) {
      worker(rank).error = error->text;
      fail(rank, error->text);
    }
    if (!listener_.message) return;
    in_listener_ = true;
    listener_.message(rank, message);
    in_listener_ = false;
  }

  void reap() {
    for (int rank = 0; rank < plan_.world_size; ++rank) {
      Worker& w = worker(rank);
      if (!w.process.reap()) continue;
      read_messages(rank);  // its last words
      if (listener_.ended) listener_.ended(rank);
      if (!w.process.end()->good()) {
        fail(rank, describe(*w.process.end()));
      } else if (!final_seen_ && !early_at_) {
        early_at_ = Clock::now() + plan_.early_exit_limit;
        early_rank_ = rank;
      }
    }
  }

  // The others leave their waits at once, and have the grace to end by themselves.
  void fail(int rank, const std::string& why) {
    if (end_.kind != Kind::finished) return;
    arena_->mark_dead(rank, why);
    end_.kind = Kind::failed;
    kill_at_ = Clock::now() + plan_.grace;
  }

  void interrupt(int number) {
    if (end_.kind != Kind::finished) {  // asked twice, or failed already: no more patience
      kill_at_ = Clock::now();
      return;
    }
    end_ = {Kind::interrupted, number, -1, "interrupted by " + signal_name(number)};
    for (Worker& w : workers_) w.process.signal(SIGTERM);
    kill_at_ = Clock::now() + plan_.grace;
  }

  void keep_deadlines() {
    const Clock::time_point now = Clock::now();
    if (early_at_ && now >= *early_at_) {
      early_at_.reset();
      fail(early_rank_, "it ended with exit code 0 before the run was over");
    }
    if (kill_at_ && now >= *kill_at_) {
      for (Worker& w : workers_) w.process.signal(SIGKILL);
      kill_at_.reset();
    }
  }

  // A worker may have given up before the launcher knew of it: the arena has the first mark.
  void describe_failure() {
    end_.rank = arena_->first_dead();
    const Worker& w = worker(end_.rank);
    const std::string reason = arena_->first_dead_reason();
    const std::string how = w.process.end() ? describe(*w.process.end()) : reason;
    // A worker that the launcher itself had to kill says by the mark, not by its end, what went wrong.
    const bool own_end = w.error.empty() && (reason == how || reason.empty());
    end_.text = "rank " + std::to_string(end_.rank) + " " + (own_end ? how : "failed");
    if (!w.error.empty()) {
      end_.text += ": " + w.error;
    } else if (!own_end) {
      end_.text += ": " + reason;
    }
    if (own_end && w.process.end()->signal == SIGKILL) {
      end_.text += "; if nobody sent it, the kernel did for want of memory (dmesg tells)";
    }
    const std::filesystem::path log = worker_log(plan_.run_folder, end_.rank);
    const std::string tail = last_lines(log, 10);
    if (!tail.empty()) end_.text += "\nend of " + log.string() + ":\n" + tail;
  }

  const LaunchPlan& plan_;
  const LaunchListener& listener_;
  DefaultChildSignal child_signal_;
  SignalDescriptor signals_;
  std::shared_ptr<comm::SharedArena> arena_;
  std::vector<Worker> workers_;
  LaunchEnd end_;
  bool final_seen_ = false;
  bool in_listener_ = false;
  std::optional<Clock::time_point> kill_at_, early_at_;
  int early_rank_ = -1;
};

}  // namespace

LaunchEnd launch(const LaunchPlan& plan, const LaunchListener& listener) {
  const WorkerLogs logs(plan.run_folder);
  return Launch(plan, listener).run();
}

std::filesystem::path find_worker() {
  const std::filesystem::path self = std::filesystem::read_symlink("/proc/self/exe");
  const std::filesystem::path worker = self.parent_path() / "lockstep-worker";
  if (access(worker.c_str(), X_OK) == 0) return worker;
  throw UsageError("this build has no trainer: there is no " + worker.string() +
                   "\n  to get it: install libtorch-dev (make setup does), then configure with "
                   "-DLOCKSTEP_TRAIN=ON and build (make build)");
}

}  // namespace lockstep::resilience
