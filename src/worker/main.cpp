// lockstep-worker RUN_FOLDER --arena-fd N --message-fd M: one rank of a run, started by `lockstep train`.
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <optional>
#include <string>

#include "base/error.hpp"
#include "comm/local_world.hpp"
#include "nn/threads.hpp"
#include "observe/worker_message.hpp"
#include "train/tensor_memory.hpp"
#include "worker/worker_run.hpp"

namespace {

using namespace lockstep;

struct Arguments {
  worker::WorkerPlace place;
  int arena_fd = -1;
  int rank = 0;
};

int number(const char* text, const std::string& what) {
  char* end = nullptr;
  const long value = text == nullptr ? -1 : std::strtol(text, &end, 10);
  if (text == nullptr || *text == '\0' || *end != '\0' || value < 0) {
    throw UsageError("lockstep-worker is started by `lockstep train`; " + what + " is missing or no number");
  }
  return static_cast<int>(value);
}

Arguments read_arguments(int argc, char** argv) {
  Arguments a;
  for (int i = 1; i < argc; ++i) {
    const std::string word = argv[i];
    if (word == "--arena-fd" && i + 1 < argc) {
      a.arena_fd = number(argv[++i], word);
    } else if (word == "--message-fd" && i + 1 < argc) {
      a.place.message_fd = number(argv[++i], word);
    } else {
      a.place.run_folder = word;
    }
  }
  if (a.place.run_folder.empty() || a.arena_fd < 0 || a.place.message_fd < 0) {
    throw UsageError("lockstep-worker is started by `lockstep train RUN.toml`, not by hand");
  }
  a.rank = number(std::getenv("RANK"), "RANK");
  return a;
}

// Tells the launcher what went wrong; when it is gone too, there is nobody left to tell.
void report(const Arguments& a, const std::string& text) {
  std::fprintf(stderr, "rank %d: %s\n", a.rank, text.c_str());
  try {
    observe::send_message(a.place.message_fd, observe::ErrorMessage{a.rank, text});
  } catch (const RunError& error) {
    std::fprintf(stderr, "rank %d: %s\n", a.rank, error.what());
  }
}

int run(const Arguments& a) {
  std::optional<comm::LocalWorld> world;
  try {
    world.emplace(comm::SharedArena::attach(a.arena_fd), a.rank);
    worker::run_worker(config::load_run_file(a.place.run_folder / "run.toml", {}), *world, a.place);
    return exit_ok;
  } catch (const std::exception& error) {
    if (world) world->abort(error.what());
    report(a, error.what());
    return dynamic_cast<const UsageError*>(&error) != nullptr ? exit_usage : exit_run_failed;
  }
}

}  // namespace

int main(int argc, char** argv) {
  std::signal(SIGPIPE, SIG_IGN);
  nn::compute_on_one_thread();
  train::count_tensor_memory();
  try {
    return run(read_arguments(argc, argv));
  } catch (const UsageError& error) {
    std::fprintf(stderr, "%s\n", error.what());
    return exit_usage;
  }
}
