#include "plan/chart.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>

#include "base/units.hpp"

namespace lockstep::plan {

namespace {

constexpr size_t most_columns = 72, lines = 5;
constexpr size_t eighths = 8;  // that a character may be filled
constexpr std::array<const char*, eighths + 1> fillings = {" ", "▁", "▂", "▃", "▄", "▅", "▆", "▇", "█"};

std::vector<double> highest_by_column(const std::vector<double>& values) {
  const size_t columns = std::min(most_columns, values.size());
  std::vector<double> highest(columns, 0);
  for (size_t i = 0; i < values.size(); ++i) {
    double& column = highest[i * columns / values.size()];
    column = std::max(column, values[i]);
  }
  return highest;
}

}  // namespace

std::string chart_text(const std::vector<double>& values, const std::string& unit) {
  if (values.empty()) return "";
  const std::vector<double> columns = highest_by_column(values);
  const double top = *std::max_element(columns.begin(), columns.end());
  const std::string label = format_quantity(top, unit), zero = format_quantity(0, unit);
  const size_t width = std::max(label.size(), zero.size());
  std::string out;
  for (size_t line = lines; line-- > 0;) {
    const std::string left = line + 1 == lines ? label : line == 0 ? zero : "";
    std::string drawn;
    for (const double value : columns) {
      const double filled = top > 0 ? std::round(value / top * lines * eighths) : 0;
      const double here =
          std::clamp(filled - static_cast<double>(line * eighths), 0.0, static_cast<double>(eighths));
      drawn += fillings[static_cast<size_t>(here)];
    }
    out += fmt::format("  {:>{}}  {}", left, width, drawn);
    out.erase(out.find_last_not_of(' ') + 1);
    out += "\n";
  }
  return out;
}

}  // namespace lockstep::plan
