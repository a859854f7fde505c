#include "observe/atomic_file.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <string>

#include "base/error.hpp"

namespace lockstep::observe {
namespace {

[[noreturn]] void fail(const std::filesystem::path& path, std::string_view what, int error) {
  throw RunError(fmt::format("{}: cannot {}: {}", path.string(), what, std::strerror(error)));
}

// An open descriptor, closed at the end.
class Descriptor {
 public:
  explicit Descriptor(int number) : number_(number) {}
  ~Descriptor() {
    if (number_ >= 0) ::close(number_);
  }
  Descriptor(const Descriptor&) = delete;
  Descriptor& operator=(const Descriptor&) = delete;
  int number() const { return number_; }

 private:
  int number_;
};

// Removes the temporary file unless it became the real one.
class Temporary {
 public:
  explicit Temporary(std::filesystem::path path) : path_(std::move(path)) {}
  ~Temporary() {
    if (!renamed_) ::unlink(path_.c_str());
  }
  Temporary(const Temporary&) = delete;
  Temporary& operator=(const Temporary&) = delete;
  const std::filesystem::path& path() const { return path_; }
  void rename_to(const std::filesystem::path& target) {
    if (::rename(path_.c_str(), target.c_str()) != 0) fail(target, "put the file in place", errno);
    renamed_ = true;
  }

 private:
  std::filesystem::path path_;
  bool renamed_ = false;
};

void write_whole(const Descriptor& file, const std::filesystem::path& path, std::string_view content) {
  while (!content.empty()) {
    const ssize_t written = ::write(file.number(), content.data(), content.size());
    if (written < 0 && errno == EINTR) continue;
    if (written < 0) fail(path, "write", errno);
    content.remove_prefix(static_cast<size_t>(written));
  }
}

}  // namespace

void write_file_atomically(const std::filesystem::path& path, std::string_view content) {
  std::string name = path.string() + ".XXXXXX";
  const Descriptor file(::mkostemp(name.data(), O_CLOEXEC));
  if (file.number() < 0) fail(path, "create", errno);
  Temporary temporary(name);
  write_whole(file, path, content);
  if (::fchmod(file.number(), 0644) != 0) fail(path, "set the mode of", errno);
  if (::fsync(file.number()) != 0) fail(path, "sync", errno);
  temporary.rename_to(path);
  const std::filesystem::path folder = path.has_parent_path() ? path.parent_path() : ".";
  const Descriptor directory(::open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (directory.number() < 0 || ::fsync(directory.number()) != 0) fail(folder, "sync the folder", errno);
}

}  // namespace lockstep::observe
