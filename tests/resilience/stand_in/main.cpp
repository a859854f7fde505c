// A real worker process for the launcher's tests: it follows lockstep-worker's contract, meets the others in
// a barrier a step over the shared arena, and misbehaves where RUN_FOLDER/script.txt says so: lines of "RANK
// STEP ACTION", and one "steps N".
#include <unistd.h>

#include <chrono>
#include <csignal>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iostream>
#include <string>
#include <thread>
#include <vector>

#include "base/error.hpp"
#include "comm/local_world.hpp"
#include "observe/worker_message.hpp"

namespace {

using namespace lockstep;

struct Script {
  int steps = 3;
  struct Line {
    int rank, step;
    std::string action;
  };
  std::vector<Line> lines;
};

Script read_script(const std::filesystem::path& folder) {
  Script script;
  std::ifstream in(folder / "script.txt");
  std::string word;
  while (in >> word) {
    if (word == "steps") {
      in >> script.steps;
    } else {
      Script::Line line{std::stoi(word), 0, ""};
      in >> line.step >> line.action;
      script.lines.push_back(line);
    }
  }
  return script;
}

void write_surroundings(const std::filesystem::path& folder) {
  std::ofstream out(folder / "surroundings.txt");
  for (const char* name : {"RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE", "OMP_NUM_THREADS",
                           "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "MALLOC_TRIM_THRESHOLD_",
                           "MALLOC_MMAP_THRESHOLD_", "MALLOC_ARENA_MAX", "LOCKSTEP_TEST_KEPT"}) {
    const char* value = std::getenv(name);
    out << name << "=" << (value == nullptr ? "(none)" : value) << "\n";
  }
  std::vector<std::string> open;
  for (const auto& entry : std::filesystem::directory_iterator("/proc/self/fd")) {
    std::error_code gone;
    const auto target = std::filesystem::read_symlink(entry.path(), gone);
    // A folder is the listing itself; surroundings.txt is this file.
    if (gone || target.string().ends_with("/fd") || target.filename() == "surroundings.txt") continue;
    out << "fd " << target.string() << "\n";
  }
}

void act(const std::string& action, int fd, const std::filesystem::path& folder) {
  if (action == "exit0") std::_Exit(0);
  if (action == "exit3") {
    std::cerr << "first words\nlast words" << std::endl;
    std::_Exit(3);
  }
  if (action == "throw") throw RunError("the loss is not a number");
  if (action == "segv") {
    std::signal(SIGSEGV, SIG_DFL);  // a sanitizer would exit instead
    std::raise(SIGSEGV);
  }
  if (action == "stop") std::raise(SIGSTOP);
  if (action == "ignore_term") std::signal(SIGTERM, SIG_IGN);
  if (action == "surroundings") write_surroundings(folder);
  if (action == "hang") std::this_thread::sleep_for(std::chrono::hours(1));
  if (action == "silent") {
    close(fd);
    std::this_thread::sleep_for(std::chrono::hours(1));
  }
  if (action == "exit3_later") {
    std::this_thread::sleep_for(std::chrono::milliseconds(300));
    std::_Exit(3);
  }
  if (action == "garbage") {
    const std::string text = "this is no message\n";
    if (write(fd, text.data(), text.size()) < 0) std::_Exit(9);
    std::this_thread::sleep_for(std::chrono::hours(1));
  }
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 6 || std::string(argv[2]) != "--arena-fd" || std::string(argv[4]) != "--message-fd") return 2;
  const std::filesystem::path folder = argv[1];
  const int fd = std::stoi(argv[5]);
  const int rank = std::stoi(std::getenv("RANK"));
  const Script script = read_script(folder);
  comm::LocalWorld world(comm::SharedArena::attach(std::stoi(argv[3])), rank);
  try {
    std::vector<int> ranks;
    for (int r = 0; r < world.size(); ++r) ranks.push_back(r);
    const auto group = world.group("world", ranks);
    observe::send_message(fd, observe::ReadyMessage{rank});
    for (int step = 1; step <= script.steps; ++step) {
      for (const auto& line : script.lines) {
        if (line.rank == rank && line.step == step) act(line.action, fd, folder);
      }
      group->barrier();
      if (rank == 0) {
        observe::StepRecord record;
        record.step = step;
        record.steps = script.steps;
        record.loss = 1.0 / step;
        observe::send_message(fd, record);
        std::this_thread::sleep_for(std::chrono::milliseconds(20));
      }
    }
    if (rank == 0) observe::send_message(fd, observe::FinalMessage{{1, 2}, 0.5});
  } catch (const RunError& error) {
    world.abort(error.what());
    observe::send_message(fd, observe::ErrorMessage{rank, error.what()});
    return 1;
  }
  return 0;
}
