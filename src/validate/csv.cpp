#include "validate/csv.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "base/error.hpp"

namespace lockstep::validate {

namespace {

class Reader {
 public:
  Reader(std::string_view text, const std::string& name) : rest_(text), name_(name) {
    constexpr std::string_view byte_order_mark = "\xEF\xBB\xBF";
    if (rest_.starts_with(byte_order_mark)) rest_.remove_prefix(byte_order_mark.size());
  }

  // The next line that is not empty; without cells at the end.
  CsvRow row() {
    while (!rest_.empty() && at_line_end()) end_line();
    CsvRow row;
    row.line = line_;
    if (rest_.empty()) return row;
    row.cells.push_back(cell());
    while (!rest_.empty() && rest_.front() == ',') {
      rest_.remove_prefix(1);
      row.cells.push_back(cell());
    }
    if (!rest_.empty()) end_line();
    return row;
  }

  [[noreturn]] void refuse(int line, const std::string& what) const {
    throw UsageError(fmt::format("{}:{}: {}", name_, line, what));
  }

 private:
  bool at_line_end() const { return rest_.starts_with('\n') || rest_.starts_with("\r\n"); }
  void end_line() {
    rest_.remove_prefix(rest_.front() == '\r' ? 2 : 1);
    ++line_;
  }

  std::string cell() {
    if (rest_.starts_with('"')) return quoted();
    size_t end = std::min(rest_.find_first_of(",\n"), rest_.size());
    if (end < rest_.size() && end > 0 && rest_[end] == '\n' && rest_[end - 1] == '\r') --end;
    std::string out(rest_.substr(0, end));
    rest_.remove_prefix(end);
    return out;
  }

  std::string quoted() {
    const int first = line_;
    rest_.remove_prefix(1);
    std::string out;
    while (true) {
      const size_t quote = rest_.find('"');
      if (quote == std::string_view::npos) refuse(first, "a quoted field begins here and is never closed");
      out += rest_.substr(0, quote);
      line_ += static_cast<int>(std::count(rest_.begin(), rest_.begin() + static_cast<long>(quote), '\n'));
      rest_.remove_prefix(quote + 1);
      if (!rest_.starts_with('"')) break;
      out += '"';
      rest_.remove_prefix(1);
    }
    if (!rest_.empty() && rest_.front() != ',' && !at_line_end()) {
      refuse(line_, "text behind a closing quote; write a quote inside a quoted field twice");
    }
    return out;
  }

  std::string_view rest_;
  const std::string& name_;
  int line_ = 1;
};

}  // namespace

CsvTable parse_csv(std::string_view text, const std::string& name) {
  Reader reader(text, name);
  CsvRow header = reader.row();
  if (header.cells.empty()) reader.refuse(1, "there is no header: the first line names the columns");
  for (size_t i = 0; i < header.cells.size(); ++i) {
    const auto end = header.cells.begin() + static_cast<long>(i);
    if (header.cells[i].empty()) {
      reader.refuse(header.line, fmt::format("column {} has no name", i + 1));
    } else if (std::find(header.cells.begin(), end, header.cells[i]) != end) {
      reader.refuse(header.line, fmt::format("there are two columns \"{}\"", header.cells[i]));
    }
  }
  CsvTable table{std::move(header.cells), {}};
  for (CsvRow row = reader.row(); !row.cells.empty(); row = reader.row())
    table.rows.push_back(std::move(row));
  return table;
}

}  // namespace lockstep::validate
