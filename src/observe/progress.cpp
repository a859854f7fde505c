#include "observe/progress.hpp"

#include <fmt/format.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <exception>

#include "base/error.hpp"
#include "base/units.hpp"

namespace lockstep::observe {
namespace {

constexpr int widest_bar = 40;
constexpr int narrowest_bar = 5;
constexpr std::string_view colour_done = "\x1b[38;5;75m";   // the forward blue of the dashboard
constexpr std::string_view colour_left = "\x1b[38;5;239m";  // the colour of rules
constexpr std::string_view colour_end = "\x1b[0m";

std::string_view environment(const char* name) {
  const char* value = std::getenv(name);
  return value ? value : "";
}

bool locale_is_utf8() {
  for (const char* name : {"LC_ALL", "LC_CTYPE", "LANG"}) {  // the first that is set decides, as in setlocale
    const std::string_view value = environment(name);
    if (value.empty()) continue;
    return value.find("UTF-8") != value.npos || value.find("utf8") != value.npos;
  }
  return false;
}

// Terminal cells of a line: one a character; bytes that continue a UTF-8 character take none.
int cells(std::string_view text) {
  return static_cast<int>(std::count_if(text.begin(), text.end(), [](char c) { return (c & 0xC0) != 0x80; }));
}

// At most `width` cells of `text`, without control characters, which would move the cursor.
std::string fit(std::string_view text, int width) {
  std::string out;
  for (const char c : text) {
    if (static_cast<unsigned char>(c) < 0x20 || c == 0x7F) continue;
    if ((c & 0xC0) != 0x80 && cells(out) == width) break;
    out += c;
  }
  return out;
}

std::string bar(double share, int width, const Terminal& terminal) {
  const int full = static_cast<int>(share * width);
  std::string out = terminal.unicode ? "" : "[";
  if (terminal.colour) out += colour_done;
  for (int i = 0; i < full; ++i) out += terminal.unicode ? "━" : "#";
  if (terminal.colour) out += colour_left;
  for (int i = full; i < width; ++i) out += terminal.unicode ? "─" : ".";
  if (terminal.colour) out += colour_end;
  return out + (terminal.unicode ? "" : "]");
}

}  // namespace

Terminal detect_terminal(int file_descriptor) {
  Terminal terminal;
  const std::string_view kind = environment("TERM");
  terminal.interactive = ::isatty(file_descriptor) == 1 && !kind.empty() && kind != "dumb";
  terminal.colour = terminal.interactive && environment("NO_COLOR").empty();
  terminal.unicode = locale_is_utf8();
  winsize size{};
  if (::ioctl(file_descriptor, TIOCGWINSZ, &size) == 0 && size.ws_col > 0) terminal.columns = size.ws_col;
  return terminal;
}

std::string progress_text(std::string_view title, int64_t done, int64_t total, double eta_seconds,
                          const Terminal& terminal) {
  const double share = std::clamp(static_cast<double>(done) / static_cast<double>(total), 0.0, 1.0);
  std::string figures = fmt::format("  {:3}%  {}/{}", static_cast<int>(share * 100), done, total);
  if (std::isfinite(eta_seconds) && eta_seconds >= 0) figures += "  eta " + format_duration(eta_seconds);

  const int room = terminal.columns - 1;
  const int ends = terminal.unicode ? 0 : 2;
  const std::string head = title.empty() ? "" : fit(title, std::max(room / 3, 1)) + "  ";
  int width = room - cells(head) - cells(figures) - ends;
  if (width >= narrowest_bar) return head + bar(share, std::min(width, widest_bar), terminal) + figures;
  // Too narrow for a bar: the figures alone, as far as they go.
  return fit(std::string_view(figures).substr(2), room);
}

Progress::Progress(std::FILE* out, Terminal terminal, std::string title, int64_t total)
    : out_(out), terminal_(terminal), title_(std::move(title)), total_(total) {
  if (total <= 0) throw RunError(fmt::format("a progress bar over {} steps", total));
}

Progress::~Progress() {
  try {
    finish();
  } catch (const std::exception&) {
    // The terminal is gone, and with it whom to tell.
  }
}

// Puts the cursor at the start of the bar's row, or where the newest line began, and clears from there.
void Progress::erase() {
  if (!drawn_) return;
  if (has_newest_) {
    const int rows = 1 + (std::max(cells(newest_), 1) - 1) / terminal_.columns;
    fmt::print(out_, "\x1b[{}A", rows);
  }
  fmt::print(out_, "\r\x1b[J");
  drawn_ = false;
}

void Progress::draw() {
  fmt::print(out_, "{}", progress_text(title_, done_, total_, eta_seconds_, terminal_));
  if (has_newest_) fmt::print(out_, "\n{}", newest_);
  std::fflush(out_);
  drawn_ = true;
}

void Progress::update(int64_t done, double eta_seconds) {
  done_ = done;
  eta_seconds_ = eta_seconds;
  if (!terminal_.interactive || finished_) return;
  erase();
  draw();
}

void Progress::line(std::string_view text) {
  if (!terminal_.interactive || finished_) {
    fmt::print(out_, "{}\n", text);
    std::fflush(out_);
    return;
  }
  erase();
  if (has_newest_) fmt::print(out_, "{}\n", newest_);  // scrolls up over the bar
  newest_ = text;
  has_newest_ = true;
  draw();
}

void Progress::finish() {
  if (finished_) return;
  finished_ = true;
  if (!terminal_.interactive) return;
  erase();
  if (has_newest_) fmt::print(out_, "{}\n", newest_);
  std::fflush(out_);
}

}  // namespace lockstep::observe
