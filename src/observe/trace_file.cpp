#include "observe/trace_file.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <system_error>

#include "base/error.hpp"

namespace lockstep::observe {

TraceFile::TraceFile(const std::filesystem::path& path)
    : path_(path), target_(path), file_(nullptr, &std::fclose) {
  std::error_code error;
  const std::filesystem::file_status there = std::filesystem::status(path, error);
  if (std::filesystem::is_directory(there)) fail("create", EISDIR);
  if (std::filesystem::exists(there)) {
    target_ = std::filesystem::canonical(path, error);
    if (error) fail("create", error.value());
  }
  if (std::filesystem::exists(there) && !std::filesystem::is_regular_file(there)) {
    file_.reset(std::fopen(target_.c_str(), "wbe"));
  } else {
    std::string name = target_.string() + ".XXXXXX";
    const int descriptor = ::mkostemp(name.data(), O_CLOEXEC);
    if (descriptor < 0) fail("create", errno);
    temporary_ = name;
    file_.reset(::fdopen(descriptor, "wb"));
  }
  if (!file_) {
    const int reason = errno;
    discard();
    fail("create", reason);
  }
  buffer_.reserve(flush_bytes + 4096);
}

TraceFile::~TraceFile() { discard(); }

void TraceFile::fail(const char* what, int error) const {
  throw RunError(fmt::format("{}: cannot {} the trace: {}", path_.string(), what, std::strerror(error)));
}

void TraceFile::discard() {
  file_.reset();
  if (!temporary_.empty()) ::unlink(temporary_.c_str());
  temporary_.clear();
}

void TraceFile::flush() {
  if (std::fwrite(buffer_.data(), 1, buffer_.size(), file_.get()) != buffer_.size()) fail("write", errno);
  buffer_.clear();
}

void TraceFile::close() {
  if (!file_) return;
  flush();
  if (!temporary_.empty() && ::fchmod(::fileno(file_.get()), 0644) != 0) fail("set the mode of", errno);
  if (std::fclose(file_.release()) != 0) fail("write", errno);
  if (temporary_.empty()) return;
  if (::rename(temporary_.c_str(), target_.c_str()) != 0) fail("put in place", errno);
  temporary_.clear();
}

}  // namespace lockstep::observe
