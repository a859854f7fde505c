#include "resilience/worker_log.hpp"

#include <algorithm>
#include <fstream>
#include <system_error>
#include <vector>

#include "base/error.hpp"

namespace lockstep::resilience {

namespace {

std::filesystem::path log_folder(const std::filesystem::path& run_folder) { return run_folder / "logs"; }

}  // namespace

std::filesystem::path worker_log(const std::filesystem::path& run_folder, int rank) {
  return log_folder(run_folder) / ("rank-" + std::to_string(rank) + ".log");
}

WorkerLogs::WorkerLogs(const std::filesystem::path& run_folder) : folder_(log_folder(run_folder)) {
  std::error_code error;
  std::filesystem::create_directory(folder_, error);
  if (error) throw RunError("cannot make " + folder_.string() + ": " + error.message());
}

WorkerLogs::~WorkerLogs() {
  std::error_code ignored;
  std::vector<std::filesystem::path> empty;
  for (const auto& entry : std::filesystem::directory_iterator(folder_, ignored)) {
    if (entry.is_regular_file(ignored) && entry.file_size(ignored) == 0) empty.push_back(entry.path());
  }
  for (const auto& path : empty) std::filesystem::remove(path, ignored);
  std::filesystem::remove(folder_, ignored);  // refused when it is not empty
}

std::string last_lines(const std::filesystem::path& file, int lines) {
  std::ifstream in(file, std::ios::binary | std::ios::ate);
  if (!in) return "";
  const std::streamoff size = in.tellg();
  const std::streamoff part = std::min<std::streamoff>(size, 4096);
  in.seekg(size - part);
  std::string text(static_cast<size_t>(part), '\0');
  in.read(text.data(), part);
  while (!text.empty() && text.back() == '\n') text.pop_back();
  size_t begin = text.size();
  for (int i = 0; i < lines && begin != std::string::npos && begin != 0; ++i) {
    begin = text.rfind('\n', begin - 1);
  }
  if (begin == std::string::npos || text.empty()) return text;
  return begin == 0 ? text : text.substr(begin + 1);
}

}  // namespace lockstep::resilience
