#include "observe/run_folder.hpp"

#include <fmt/chrono.h>
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <ctime>
#include <random>
#include <system_error>

#include "base/error.hpp"
#include "observe/atomic_file.hpp"

namespace lockstep::observe {
namespace {

namespace fs = std::filesystem;
constexpr std::array<const char*, 3> subfolders = {"trace", "flight", "checkpoints"};

void check_name(std::string_view name) {
  const auto allowed = [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '.' ||
           c == '_' || c == '-';
  };
  const bool fine = !name.empty() && name.size() <= 100 && name.front() != '.' && name.front() != '-' &&
                    std::all_of(name.begin(), name.end(), allowed);
  if (fine) return;
  throw UsageError(
      fmt::format("name = \"{}\": a run's name becomes a folder's: 1 to 100 letters, digits, '.', '_' or "
                  "'-', not starting with '.' "
                  "or '-'.",
                  name));
}

std::string unique_name(std::string_view name) {
  std::random_device random;
  return fmt::format("{}-{:%Y%m%d-%H%M%S}-{:06x}", name, fmt::gmtime(std::time(nullptr)),
                     random() & 0xFFFFFFu);
}

// Removes what was made when the rest cannot be. A folder that the user had made stays, empty as it was.
class Undo {
 public:
  Undo(fs::path folder, bool was_there) : folder_(std::move(folder)), was_there_(was_there) {}
  ~Undo() {
    if (done_) return;
    std::error_code ignored;
    if (was_there_) {
      for (const char* name : subfolders) fs::remove_all(folder_ / name, ignored);
      fs::remove(folder_ / "run.toml", ignored);
    } else {
      fs::remove_all(folder_, ignored);
    }
  }
  Undo(const Undo&) = delete;
  Undo& operator=(const Undo&) = delete;
  void done() { done_ = true; }

 private:
  fs::path folder_;
  bool was_there_;
  bool done_ = false;
};

void fill(const fs::path& folder, bool was_there, std::string_view run_toml) {
  Undo undo(folder, was_there);
  for (const char* name : subfolders) fs::create_directory(folder / name);
  write_file_atomically(folder / "run.toml", run_toml);
  undo.done();
}

[[noreturn]] void cannot_make(const fs::path& folder, const std::error_code& why) {
  throw RunError(fmt::format("{}: cannot make the run folder: {}. Choose another place with --run-dir.",
                             folder.string(), why.message()));
}

}  // namespace

RunFolder RunFolder::create(const fs::path& parent, std::string_view name, std::string_view run_toml) {
  check_name(name);
  const fs::path folder = parent / unique_name(name);
  try {
    fs::create_directories(parent);
    // False: another run drew the same id in the same second.
    if (!fs::create_directory(folder)) cannot_make(folder, std::make_error_code(std::errc::file_exists));
    fill(folder, false, run_toml);
  } catch (const fs::filesystem_error& error) {
    cannot_make(folder, error.code());
  }
  return RunFolder(folder);
}

RunFolder RunFolder::create_at(const fs::path& path, std::string_view run_toml) {
  try {
    const bool was_there = fs::exists(fs::symlink_status(path));
    if (was_there && !(fs::is_directory(path) && fs::is_empty(path))) {
      throw UsageError(fmt::format("--run-dir {}: is there already and not an empty folder. Give a new one.",
                                   path.string()));
    }
    if (!was_there) fs::create_directories(path);
    fill(path, was_there, run_toml);
  } catch (const fs::filesystem_error& error) {
    cannot_make(path, error.code());
  }
  return RunFolder(path);
}

RunFolder RunFolder::open(const fs::path& path) {
  std::error_code ignored;
  RunFolder folder(path);
  for (const fs::path& part : {folder.run_toml(), folder.database()}) {
    if (fs::is_regular_file(part, ignored)) continue;
    throw UsageError(fmt::format(
        "{}: not a run folder ({} is missing). Give a folder that train made, as runs/NAME-TIME-ID.",
        path.string(), part.filename().string()));
  }
  return folder;
}

}  // namespace lockstep::observe
