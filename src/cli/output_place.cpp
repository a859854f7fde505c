#include "cli/output_place.hpp"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <system_error>

#include "base/error.hpp"
#include "observe/trace_writer.hpp"

namespace lockstep::cli {

namespace {

namespace fs = std::filesystem;

// With links followed as far as there is something.
fs::path real_path(const fs::path& path) {
  std::error_code error;
  const fs::path real = fs::weakly_canonical(fs::absolute(path), error);
  return error ? fs::absolute(path).lexically_normal() : real;
}

bool lies_inside(const fs::path& file, const fs::path& folder) {
  const fs::path inner = real_path(file), outer = real_path(folder);
  return std::mismatch(outer.begin(), outer.end(), inner.begin(), inner.end()).first == outer.end();
}

}  // namespace

void check_output_place(const std::string& what, const fs::path& file) {
  std::error_code error;
  const fs::file_status there = fs::status(file, error);
  if (fs::is_directory(there)) throw UsageError(fmt::format("{}: is a folder. Give a file's name", what));
  if (fs::exists(there) && !fs::is_regular_file(there)) {
    throw UsageError(fmt::format("{}: is there, and no regular file. Give another name", what));
  }
  const fs::path folder = (fs::exists(there) ? real_path(file) : fs::absolute(file)).parent_path();
  if (!fs::is_directory(folder, error)) {
    throw UsageError(fmt::format("{}: there is no folder {}", what, folder.string()));
  }
  if (access(folder.c_str(), W_OK) != 0) {
    throw UsageError(fmt::format("{}: you may not write to {}", what, folder.string()));
  }
}

void check_trace_place(const fs::path& file, const std::vector<fs::path>& inputs,
                       const fs::path& run_folder) {
  const std::string what = fmt::format("--trace {}", file.string());
  std::error_code error;
  for (const fs::path& input : inputs) {
    if (!fs::equivalent(file, input, error)) continue;
    throw UsageError(fmt::format("{}: is {} itself, which is read. Give another name", what, input.string()));
  }
  if (!run_folder.empty() && lies_inside(file, run_folder)) {
    throw UsageError(
        fmt::format("{}: lies in the run folder of --against, which is only read. Give another place", what));
  }
  if (fs::is_character_file(file, error)) return;
  check_output_place(what, file);
  if (!fs::exists(file, error) || fs::file_size(file, error) == 0 || observe::holds_trace(file)) return;
  throw UsageError(fmt::format("{}: is there, and no trace. Give another name, or remove it", what));
}

}  // namespace lockstep::cli
