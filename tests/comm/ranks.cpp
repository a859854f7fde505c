#include "ranks.hpp"

#include <gtest/gtest.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <numeric>
#include <thread>

namespace lockstep::comm::test {

std::vector<int> everyone(int n) {
  std::vector<int> ranks(static_cast<size_t>(n));
  std::iota(ranks.begin(), ranks.end(), 0);
  return ranks;
}

std::vector<std::string> run_threads(int ranks, const RankBody& body, bool abort_on_error) {
  const auto arena = SharedArena::create(ranks);
  std::vector<std::string> errors(static_cast<size_t>(ranks));
  std::vector<std::thread> threads;
  for (int r = 0; r < ranks; ++r) {
    threads.emplace_back([&, r] {
      LocalWorld world(arena, r);
      try {
        body(world);
      } catch (const std::exception& e) {
        errors[static_cast<size_t>(r)] = e.what();
        if (abort_on_error) world.abort(e.what());
      }
    });
  }
  for (std::thread& t : threads) t.join();
  return errors;
}

namespace {

[[noreturn]] void run_child(const SharedArena& arena, int rank, int report, const RankBody& body) {
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  std::string error;
  try {
    LocalWorld world(SharedArena::attach(arena.fd()), rank);
    body(world);
  } catch (const std::exception& e) {
    error = e.what();
  }
  if (write(report, error.data(), error.size()) < 0) _exit(2);
  _exit(0);
}

std::string read_all(int fd) {
  std::string text;
  char buffer[4096];
  for (ssize_t n; (n = read(fd, buffer, sizeof buffer)) > 0;) text.append(buffer, static_cast<size_t>(n));
  close(fd);
  return text;
}

}  // namespace

std::vector<std::string> run_processes(int ranks, const RankBody& body) {
  const auto arena = SharedArena::create(ranks);
  std::vector<pid_t> pids;
  std::vector<int> reports;
  for (int r = 0; r < ranks; ++r) {
    int ends[2];
    if (pipe(ends) != 0) throw std::runtime_error("pipe");
    const pid_t pid = fork();
    if (pid == 0) {
      close(ends[0]);
      run_child(*arena, r, ends[1], body);
    }
    close(ends[1]);
    pids.push_back(pid);
    reports.push_back(ends[0]);
  }
  std::vector<std::string> killed(static_cast<size_t>(ranks));
  for (int left = ranks; left > 0; --left) {
    int status = 0;
    const pid_t pid = wait(&status);
    const auto rank = static_cast<size_t>(std::find(pids.begin(), pids.end(), pid) - pids.begin());
    if (!WIFSIGNALED(status)) continue;
    killed[rank] = "signal " + std::to_string(WTERMSIG(status));
    arena->mark_dead(static_cast<int>(rank), "killed by " + killed[rank]);
  }
  std::vector<std::string> errors;
  for (size_t r = 0; r < reports.size(); ++r) errors.push_back(read_all(reports[r]) + killed[r]);
  return errors;
}

void expect_no_errors(const std::vector<std::string>& errors) {
  for (size_t r = 0; r < errors.size(); ++r) EXPECT_EQ(errors[r], "") << "rank " << r;
}

}  // namespace lockstep::comm::test
