// A progress bar with an ETA for a terminal; plain lines elsewhere. The bar stands above the newest line,
// older lines scroll up over it; it is gone when the work ends.
#pragma once

#include <cstdint>
#include <cstdio>
#include <string>
#include <string_view>

namespace lockstep::observe {

struct Terminal {
  bool interactive = false;  // a terminal that understands cursor movement
  bool colour = false;       // interactive, and NO_COLOR is not set (no-color.org)
  bool unicode = false;      // the locale is UTF-8
  int columns = 80;
};

Terminal detect_terminal(int file_descriptor);

// The bar as one line of at most `columns` - 1 characters:
// "tiny  [#######.............]  34%  204/600  eta 0:01:12". The eta is left out when negative or not finite.
std::string progress_text(std::string_view title, int64_t done, int64_t total, double eta_seconds,
                          const Terminal& terminal);

// Writes to `out` only. With a terminal that is not interactive it prints the lines and nothing else.
class Progress {
 public:
  // `total` > 0. `out` must outlive the bar.
  Progress(std::FILE* out, Terminal terminal, std::string title, int64_t total);
  ~Progress();
  Progress(const Progress&) = delete;
  Progress& operator=(const Progress&) = delete;

  void update(int64_t done, double eta_seconds);  // redraws the bar
  void line(std::string_view text);               // a whole line that stays; redraws the bar above it
  void finish();                                  // clears the bar; later lines are plain

 private:
  void erase();
  void draw();

  std::FILE* out_;
  Terminal terminal_;
  std::string title_;
  int64_t total_;
  int64_t done_ = 0;
  double eta_seconds_ = -1;
  std::string newest_;       // the line under the bar
  bool has_newest_ = false;  // false: nothing was printed yet
  bool drawn_ = false;
  bool finished_ = false;
};

}  // namespace lockstep::observe
