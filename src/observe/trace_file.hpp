// The file that a trace is written to: whole at its path after close(), absent before and after a failure.
#pragma once

#include <cstdio>
#include <filesystem>
#include <memory>
#include <string>

namespace lockstep::observe {

// Streams to a temporary file beside `path`, which close() puts in place; a device or a pipe is written to
// directly. A failure is a RunError with the system's reason.
class TraceFile {
 public:
  explicit TraceFile(const std::filesystem::path& path);
  ~TraceFile();  // without close(): removes what was written
  TraceFile(const TraceFile&) = delete;
  TraceFile& operator=(const TraceFile&) = delete;

  // Append here; between two appended pieces call written(), which passes the buffer on when it is full.
  std::string& buffer() { return buffer_; }
  void written() {
    if (buffer_.size() >= flush_bytes) flush();
  }
  // A second call does nothing.
  void close();

 private:
  static constexpr size_t flush_bytes = 256 * 1024;
  void flush();
  void discard();
  [[noreturn]] void fail(const char* what, int error) const;

  std::filesystem::path path_;       // as given, for messages
  std::filesystem::path target_;     // with symbolic links followed
  std::filesystem::path temporary_;  // empty: written to directly
  std::unique_ptr<std::FILE, int (*)(std::FILE*)> file_;
  std::string buffer_;
};

}  // namespace lockstep::observe
