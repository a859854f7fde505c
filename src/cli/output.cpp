#include "cli/output.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>

#include "base/error.hpp"
#include "base/json.hpp"
#include "base/terminal_text.hpp"

namespace lockstep::cli {

namespace {

[[noreturn]] void cannot_write() {
  throw RunError(std::string("cannot write to standard output: ") + std::strerror(errno));
}

std::string padding(std::string_view text, size_t width) {
  const auto columns =
      static_cast<size_t>(std::count_if(text.begin(), text.end(), [](char c) { return (c & 0xC0) != 0x80; }));
  return std::string(width > columns ? width - columns : 0, ' ');
}

}  // namespace

void print(std::string_view text) {
  if (std::fwrite(text.data(), 1, text.size(), stdout) != text.size()) cannot_write();
}

void print_json(const Json& document) {
  // Names and messages may hold bytes that are not UTF-8 (file names): those become U+FFFD.
  print(document.dump(2, ' ', false, Json::error_handler_t::replace) + "\n");
}

void log(std::string_view text) {
  std::fwrite(text.data(), 1, text.size(), stderr);
  std::fputc('\n', stderr);
}

void complain(std::string_view text) {
  // What a user gave may hold control characters, which a terminal would obey.
  log("lockstep: " + escaped(text, "\n\t"));
}

void finish_output() {
  if (std::fflush(stdout) != 0) cannot_write();
}

std::string right(std::string_view text, size_t width) { return padding(text, width) + std::string(text); }
std::string left(std::string_view text, size_t width) { return std::string(text) + padding(text, width); }

}  // namespace lockstep::cli
