#include "config/cluster_file.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <fstream>
#include <sstream>
#include <system_error>

#include "base/error.hpp"

namespace lockstep::config {
namespace {

namespace fs = std::filesystem;

std::string_view last_line(std::string_view text) {
  const size_t end = text.find_last_not_of("\r\n");
  if (end == std::string_view::npos) return "";
  text = text.substr(0, end + 1);
  return text.substr(text.rfind('\n') + 1);  // npos + 1 is 0
}

bool has_table(const std::vector<Entry>& entries, std::string_view table) {
  return std::any_of(entries.begin(), entries.end(), [&](const Entry& e) { return e.table == table; });
}

}  // namespace

std::string read_text(const fs::path& file, const char* what) {
  std::error_code error;
  const fs::file_status status = fs::status(file, error);
  if (!fs::exists(status)) throw UsageError(fmt::format("{}: no such {}", file.string(), what));
  if (!fs::is_regular_file(status)) throw UsageError(fmt::format("{}: not a file", file.string()));
  constexpr uintmax_t most = 1 << 20;
  if (fs::file_size(file, error) > most) {
    throw UsageError(fmt::format("{}: over 1 MiB, too large for a {}", file.string(), what));
  }
  std::ifstream in(file, std::ios::binary);
  std::ostringstream text;
  if (in.peek() != std::ifstream::traits_type::eof()) text << in.rdbuf();
  if (!in.is_open() || in.bad() || text.fail()) {
    throw UsageError(fmt::format("{}: cannot be read; check its permissions", file.string()));
  }
  return text.str();
}

std::vector<Entry> read_cluster_file(const fs::path& file) {
  const std::string text = read_text(file, "cluster file");
  if (text.starts_with(calibration_first_line) && last_line(text) != calibration_last_line) {
    throw UsageError(
        fmt::format("{}: `lockstep calibrate` wrote it and it was cut, or by an earlier version (the last "
                    "line should be \"{}\"): calibrate again",
                    file.string(), calibration_last_line));
  }
  const std::vector<Entry> entries = parse_toml(text, file.string()).entries;
  if (!has_table(entries, "cluster")) {
    throw UsageError(fmt::format(
        "{}: holds no figure: a cluster file is a [cluster] table, as `lockstep calibrate` writes it",
        file.string()));
  }
  return entries;
}

std::vector<Entry> read_software_file(const fs::path& file) {
  const std::vector<Entry> entries = parse_toml(read_text(file, "software file"), file.string()).entries;
  if (!has_table(entries, "software")) {
    throw UsageError(
        fmt::format("{}: holds no key: a software file is a [software] table, as in configs/presets/software",
                    file.string()));
  }
  return entries;
}

}  // namespace lockstep::config
