// A run is a folder: run.toml (resolved), run.db, trace/, flight/, checkpoints/.
#pragma once

#include <filesystem>
#include <string>
#include <string_view>
#include <utility>

namespace lockstep::observe {

class RunFolder {
 public:
  // Makes PARENT/NAME-TIME-ID (time in UTC, as 20261129-142205; the id six hex digits). `name` may hold
  // letters, digits, '.', '_' and '-', and must not start with '.' or '-': UsageError otherwise. RunError
  // when the folder cannot be made; what was made by then is removed again.
  static RunFolder create(const std::filesystem::path& parent, std::string_view name,
                          std::string_view run_toml);

  // Makes the run folder at `path` itself, which must be absent or an empty folder (UsageError otherwise).
  static RunFolder create_at(const std::filesystem::path& path, std::string_view run_toml);

  // A folder made before, for --resume: UsageError when it is not a run folder.
  static RunFolder open(const std::filesystem::path& path);

  const std::filesystem::path& path() const { return path_; }
  std::filesystem::path run_toml() const { return path_ / "run.toml"; }
  std::filesystem::path database() const { return path_ / "run.db"; }
  std::filesystem::path trace() const { return path_ / "trace"; }
  std::filesystem::path flight() const { return path_ / "flight"; }
  std::filesystem::path checkpoints() const { return path_ / "checkpoints"; }

 private:
  explicit RunFolder(std::filesystem::path path) : path_(std::move(path)) {}
  std::filesystem::path path_;
};

}  // namespace lockstep::observe
