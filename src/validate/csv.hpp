// Comma-separated values, RFC 4180: a quoted field may hold commas, line ends, and quotes written twice.
// Lines end in LF or CRLF; empty ones are skipped.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace lockstep::validate {

struct CsvRow {
  int line = 0;  // on which it begins, from 1
  std::vector<std::string> cells;
};

struct CsvTable {
  std::vector<std::string> columns;  // of the first line
  std::vector<CsvRow> rows;          // with as many cells as they have
};

// `name` is what messages call the text. UsageError with name:line where there is no header, a column has no
// name or that of another, a quote is never closed, or a quoted field goes on behind its closing quote.
CsvTable parse_csv(std::string_view text, const std::string& name);

}  // namespace lockstep::validate
