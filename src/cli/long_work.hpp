// How far long work is, for standard error.
#pragma once

#include <chrono>
#include <cstdint>
#include <cstdio>
#include <optional>
#include <string>

#include "observe/progress.hpp"

namespace lockstep::cli {

// On a terminal a bar with an ETA, from when the work has taken a second; elsewhere a line every so many
// seconds: "search: 34 %, 204 of 600, about 0:01:12 left".
class LongWork {
 public:
  static constexpr double seconds_between_lines = 10;

  // `out` outlives this.
  LongWork(std::string title, std::FILE* out, observe::Terminal terminal,
           double between_lines = seconds_between_lines);

  void update(int64_t done, int64_t of);  // 0 < done <= of; `of` stays the same
  void finish();                          // clears the bar

 private:
  double passed() const;

  std::string title_;
  std::FILE* out_;
  observe::Terminal terminal_;
  double between_lines_, next_line_;
  std::chrono::steady_clock::time_point start_ = std::chrono::steady_clock::now();
  std::optional<observe::Progress> bar_;
};

}  // namespace lockstep::cli
