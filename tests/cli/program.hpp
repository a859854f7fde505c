// Runs the built `lockstep` as a person does, and watches it from outside.
#pragma once

#include <sys/types.h>

#include <filesystem>
#include <set>
#include <string>
#include <vector>

namespace lockstep::test {

struct Outcome {
  int code = -1;   // exit code; -1 when a signal killed it
  int signal = 0;  // that killed it
  std::string out, err;
  double seconds = 0;
  int64_t peak_bytes = 0;  // largest resident size, by the kernel's account
};

// A program that was started and has not been waited for. It is killed when the object goes.
class Program {
 public:
  // build/.../lockstep with these arguments, in `folder`. `stdout_fd` takes its standard output, which is
  // captured when it is -1.
  Program(const std::vector<std::string>& arguments, const std::filesystem::path& folder, int stdout_fd = -1);
  ~Program();
  Program(const Program&) = delete;
  Program& operator=(const Program&) = delete;

  pid_t pid() const { return pid_; }
  void signal(int number) const;
  std::string out() const;  // so far
  std::string err() const;
  Outcome wait();

 private:
  pid_t pid_ = -1;
  int out_ = -1, err_ = -1;
  double start_ = 0;
};

Outcome lockstep(const std::vector<std::string>& arguments, const std::filesystem::path& folder = "/tmp");

std::filesystem::path lockstep_binary();
bool has_worker();  // lockstep-worker is built beside it

// Children of a process, from /proc; zombies left out.
std::set<pid_t> children_of(pid_t parent);
bool alive(pid_t pid);  // and no zombie
// True when none of them is alive any more within so many seconds.
bool end_within(const std::set<pid_t>& pids, double seconds);

std::set<std::string> named_shared_memory();  // /dev/shm

// Every path under a folder, with sizes: unequal when anything was written.
std::set<std::string> listing(const std::filesystem::path& folder);

// A folder that is removed again.
class TemporaryFolder {
 public:
  TemporaryFolder();
  ~TemporaryFolder();
  TemporaryFolder(const TemporaryFolder&) = delete;
  TemporaryFolder& operator=(const TemporaryFolder&) = delete;
  const std::filesystem::path& path() const { return path_; }

 private:
  std::filesystem::path path_;
};

// A run file of the tests' own (tiny.toml's model, TP2 x PP2 x DP2; the configs may be tuned), with one text
// replaced by another. Fails the test when the text is not there. Returns the line of the replacement.
int write_run_file(const std::filesystem::path& file, const std::string& from = "",
                   const std::string& to = "");

std::filesystem::path tiny();  // configs/tiny.toml

}  // namespace lockstep::test
