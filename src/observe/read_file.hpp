// Reading a whole file, with the system's reason when that fails.
#pragma once

#include <fcntl.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <filesystem>
#include <string>
#include <system_error>

namespace lockstep::observe {

// The file's bytes. std::system_error (its code is the reason) when it cannot be opened or read: callers say
// what that means to the user.
inline std::string read_file(const std::filesystem::path& path) {
  const int file = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (file < 0) throw std::system_error(errno, std::generic_category());
  std::string content;
  std::array<char, 65536> piece;
  ssize_t got = 0;
  do {
    got = ::read(file, piece.data(), piece.size());
    if (got > 0) content.append(piece.data(), static_cast<size_t>(got));
  } while (got > 0 || (got < 0 && errno == EINTR));
  const int error = errno;
  ::close(file);
  if (got < 0) throw std::system_error(error, std::generic_category());
  return content;
}

}  // namespace lockstep::observe
