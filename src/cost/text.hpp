// What planner and simulator print: aligned columns, one line of meaning above each table, colour only when
// asked for. The same text without colour goes into pipes.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "cost/step_figures.hpp"

namespace lockstep::cost {

struct Style {
  bool colour = false;  // the caller knows whether it writes to a terminal

  // `text` in the colour of a part of the step ("compute", "tp", ...), "good" or "bad".
  std::string paint(std::string_view part, std::string_view text) const;
  std::string bold(std::string_view text) const;
  std::string dim(std::string_view text) const;
};

// First column left, the others right-aligned, two spaces before and between. Cells may hold UTF-8, wide
// characters too; colours are given per row and do not count as width.
class TextTable {
 public:
  explicit TextTable(const Style& style) : style_(style) {}
  // Names of the columns, dim; first of all rows.
  void header(std::vector<std::string> cells);
  // `part`: colours the first cell; empty: none.
  void row(std::vector<std::string> cells, std::string_view part = "");
  std::string text() const;

 private:
  struct Row {
    std::vector<std::string> cells;
    std::string part;
    bool header = false;
  };
  Style style_;
  std::vector<Row> rows_;
};

std::string percent(double share);  // "43.5 %"

// The step in one large line, its figures, and the table of where it goes. `origin`: "computed", "simulated".
std::string step_text(const StepFigures& figures, std::string_view origin, const Style& style);
// What is run, on what, cut how, in what micro-batches: a few lines of at most 100 characters.
std::string run_line(const config::RunFile& run);

}  // namespace lockstep::cost
