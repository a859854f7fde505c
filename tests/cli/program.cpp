#include "cli/program.hpp"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <csignal>
#include <fstream>
#include <sstream>
#include <thread>

namespace lockstep::test {

namespace fs = std::filesystem;

namespace {

double now() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

std::string read_all(int fd) {
  std::string out;
  char part[4096];
  ssize_t n = 0;
  while ((n = pread(fd, part, sizeof part, static_cast<off_t>(out.size()))) > 0) {
    out.append(part, static_cast<size_t>(n));
  }
  return out;
}

// State letter and parent of a process; '\0' when it is gone.
std::pair<char, pid_t> state_of(pid_t pid) {
  std::ifstream in("/proc/" + std::to_string(pid) + "/stat");
  std::string text;
  if (!std::getline(in, text)) return {'\0', -1};
  std::istringstream rest(text.substr(text.rfind(')') + 1));
  char state = '\0';
  pid_t parent = -1;
  rest >> state >> parent;
  return {state, parent};
}

}  // namespace

Program::Program(const std::vector<std::string>& arguments, const fs::path& folder, int stdout_fd)
    : out_(memfd_create("stdout", MFD_CLOEXEC)), err_(memfd_create("stderr", MFD_CLOEXEC)), start_(now()) {
  std::vector<std::string> words = {lockstep_binary()};
  words.insert(words.end(), arguments.begin(), arguments.end());
  std::vector<char*> pointers;
  for (std::string& word : words) pointers.push_back(word.data());
  pointers.push_back(nullptr);
  pid_ = fork();
  if (pid_ != 0) return;
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  const int null = open("/dev/null", O_RDONLY);
  dup2(null, STDIN_FILENO);
  dup2(stdout_fd >= 0 ? stdout_fd : out_, STDOUT_FILENO);
  dup2(err_, STDERR_FILENO);
  if (chdir(folder.c_str()) == 0) execv(pointers[0], pointers.data());
  _exit(126);
}

Program::~Program() {
  if (pid_ > 0) {
    kill(pid_, SIGKILL);
    waitpid(pid_, nullptr, 0);
  }
  close(out_);
  close(err_);
}

void Program::signal(int number) const { kill(pid_, number); }
std::string Program::out() const { return read_all(out_); }
std::string Program::err() const { return read_all(err_); }

Outcome Program::wait() {
  Outcome outcome;
  int status = 0;
  rusage usage{};
  if (wait4(pid_, &status, 0, &usage) != pid_) ADD_FAILURE() << "wait4 failed";
  pid_ = -1;
  outcome.seconds = now() - start_;
  outcome.peak_bytes = usage.ru_maxrss * int64_t{1024};
  if (WIFEXITED(status)) outcome.code = WEXITSTATUS(status);
  if (WIFSIGNALED(status)) outcome.signal = WTERMSIG(status);
  outcome.out = out();
  outcome.err = err();
  return outcome;
}

Outcome lockstep(const std::vector<std::string>& arguments, const fs::path& folder) {
  return Program(arguments, folder).wait();
}

fs::path lockstep_binary() { return fs::path(LOCKSTEP_BINARY_DIR) / "lockstep"; }
bool has_worker() { return fs::exists(fs::path(LOCKSTEP_BINARY_DIR) / "lockstep-worker"); }

std::set<pid_t> children_of(pid_t parent) {
  std::set<pid_t> out;
  for (const auto& entry : fs::directory_iterator("/proc")) {
    const std::string name = entry.path().filename();
    if (name.find_first_not_of("0123456789") != std::string::npos) continue;
    const auto pid = static_cast<pid_t>(std::stol(name));
    const auto [state, its_parent] = state_of(pid);
    if (its_parent == parent && state != 'Z') out.insert(pid);
  }
  return out;
}

bool alive(pid_t pid) {
  const char state = state_of(pid).first;
  return state != '\0' && state != 'Z' && state != 'X';
}

bool end_within(const std::set<pid_t>& pids, double seconds) {
  const double limit = now() + seconds;
  for (const pid_t pid : pids) {
    while (alive(pid)) {
      if (now() > limit) return false;
      std::this_thread::sleep_for(std::chrono::milliseconds(5));
    }
  }
  return true;
}

std::set<std::string> named_shared_memory() { return listing("/dev/shm"); }

std::set<std::string> listing(const fs::path& folder) {
  std::set<std::string> out;
  for (const auto& entry : fs::recursive_directory_iterator(folder)) {
    std::error_code gone;
    const auto size = entry.is_regular_file(gone) ? entry.file_size(gone) : 0;
    out.insert(entry.path().string() + " " + std::to_string(size));
  }
  return out;
}

TemporaryFolder::TemporaryFolder() {
  std::string pattern = testing::TempDir() + "lockstep-test-XXXXXX";
  path_ = mkdtemp(pattern.data());
}
TemporaryFolder::~TemporaryFolder() {
  std::error_code ignored;
  fs::remove_all(path_, ignored);
}

fs::path tiny() { return fs::path(LOCKSTEP_SOURCE_DIR) / "configs/tiny.toml"; }

int write_run_file(const fs::path& file, const std::string& from, const std::string& to) {
  std::string text = R"(name = "tiny"
[model]
layers = 4
hidden = 128
ffn = 384
heads = 8
kv_heads = 4
vocab = 256
[cluster]
preset = "local"
gpus = 8
[parallel]
tp = 2
cp = 1
pp = 2
dp = 2
schedule = "1f1b"
micro_batch = 1
[train]
sequence = 128
global_batch = 16
steps = 600
lr = 3e-3
[data]
text = ")" LOCKSTEP_SOURCE_DIR R"(/data/sotu"
held_out = ["2016_barack_obama_d"]
)";
  const size_t at = text.find(from);
  EXPECT_NE(at, std::string::npos) << "the run file does not say " << from;
  if (at != std::string::npos) text.replace(at, from.size(), to);
  std::ofstream(file) << text;
  return 1 + static_cast<int>(std::count(text.begin(), text.begin() + static_cast<std::ptrdiff_t>(at), '\n'));
}

}  // namespace lockstep::test
