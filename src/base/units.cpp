#include "base/units.hpp"

#include <fmt/format.h>

#include <array>
#include <cmath>
#include <cstdlib>
#include <string_view>

namespace lockstep {
namespace {

constexpr int significant = 3;

// A value rounded to three significant figures, then split as mantissa x 1000^group with 1 <= mantissa <
// 1000.
struct Engineering {
  std::string mantissa;  // "65.1", with sign
  int group = 0;
};

// Works on the printed digits, so that rounding up to the next group (999.7 -> 1.00 of the next) cannot be
// missed.
Engineering engineering(double value) {
  const std::string printed = fmt::format("{:.{}e}", std::fabs(value), significant - 1);  // "d.dde+xx"
  const size_t e = printed.find('e');
  const int exponent = std::atoi(printed.c_str() + e + 1);
  std::string digits = printed.substr(0, 1) + printed.substr(2, e - 2);
  const int group = static_cast<int>(std::floor(exponent / 3.0));
  const size_t whole = static_cast<size_t>(exponent - 3 * group) + 1;
  if (whole < digits.size()) digits.insert(whole, 1, '.');
  return {(value < 0 ? "-" : "") + digits, group};
}

bool is_small_whole(double value) { return std::fabs(value) < 1000 && value == std::trunc(value); }

// "3.79e25": fmt writes "3.79e+25".
std::string scientific(double value) {
  std::string text = fmt::format("{:.{}e}", value, significant - 1);
  const size_t plus = text.find('+');
  if (plus != std::string::npos) text.erase(plus, 1);
  return text;
}

}  // namespace

std::string format_quantity(double value, const std::string& unit) {
  static constexpr std::array<std::string_view, 11> prefixes = {"p", "n", "µ", "m", "", "k",
                                                                "M", "G", "T", "P", "E"};
  constexpr int unity = 4;
  if (!std::isfinite(value) || value == 0) return fmt::format("{} {}", value, unit);
  const Engineering figure = engineering(value);
  const int index = figure.group + unity;
  if (index < 0 || index >= static_cast<int>(prefixes.size())) return scientific(value) + " " + unit;
  return fmt::format("{} {}{}", figure.mantissa, prefixes[static_cast<size_t>(index)], unit);
}

std::string format_bytes(double bytes) {
  if (is_small_whole(bytes)) return fmt::format("{:.0f} B", bytes);
  return format_quantity(bytes, "B");
}

std::string format_binary_bytes(double bytes) {
  static constexpr std::array<std::string_view, 7> units = {"B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB"};
  if (!std::isfinite(bytes)) return fmt::format("{}B", bytes);
  size_t unit = 0;
  // 1023.5 would print as 1024 of a unit.
  while (std::fabs(bytes) >= 1023.5 && unit + 1 < units.size()) {
    bytes /= 1024;
    ++unit;
  }
  const bool tenths = unit > 0 && std::fabs(bytes) < 99.95;
  return fmt::format("{:.{}f}{}", bytes, tenths ? 1 : 0, units[unit]);
}

std::string format_seconds(double seconds) {
  if (std::isfinite(seconds) && std::fabs(seconds) >= 999.5 && std::fabs(seconds) < 9e18) {
    return format_thousands(std::llround(seconds)) + " s";
  }
  return format_quantity(seconds, "s");
}

std::string format_count(double count) {
  static constexpr std::array<std::string_view, 5> suffixes = {"", "K", "M", "B", "T"};
  if (!std::isfinite(count)) return fmt::format("{}", count);
  if (is_small_whole(count)) return fmt::format("{:.0f}", count == 0 ? 0.0 : count);
  const Engineering figure = engineering(count);
  if (figure.group < 0 || figure.group >= static_cast<int>(suffixes.size())) return scientific(count);
  return figure.mantissa + std::string(suffixes[static_cast<size_t>(figure.group)]);
}

std::string format_duration(double seconds) {
  if (!std::isfinite(seconds) || std::fabs(seconds) > 9e18) return "-:--:--";
  const int64_t total = std::llround(std::fabs(seconds));
  return fmt::format("{}{}:{:02}:{:02}", seconds < 0 && total > 0 ? "-" : "", total / 3600, total / 60 % 60,
                     total % 60);
}

std::string format_thousands(int64_t value) {
  std::string digits = fmt::format("{}", value);
  const int64_t first = value < 0 ? 1 : 0;
  for (int64_t at = static_cast<int64_t>(digits.size()) - 3; at > first; at -= 3) {
    digits.insert(static_cast<size_t>(at), 1, ',');
  }
  return digits;
}

}  // namespace lockstep
