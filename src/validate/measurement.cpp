#include "validate/measurement.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <map>
#include <span>

#include "base/edit_distance.hpp"
#include "base/embedded.hpp"
#include "base/error.hpp"
#include "base/terminal_text.hpp"
#include "base/units.hpp"
#include "validate/csv.hpp"

namespace lockstep {
std::span<const EmbeddedFile> embedded_measurements();  // generated from data/published by cmake/embed.cmake
}  // namespace lockstep

namespace lockstep::validate {

namespace {

struct Column {
  std::string_view name;
  std::string Measurement::*text = nullptr;
  std::optional<int64_t> Measurement::*count = nullptr;
  std::optional<double> Measurement::*figure = nullptr;
  bool needed = false;
};

using M = Measurement;
const std::vector<Column>& columns() {
  static const std::vector<Column> all = {
      {"source", &M::source, nullptr, nullptr, true},
      {"model", &M::model, nullptr, nullptr, true},
      {"params_b", nullptr, nullptr, &M::billion_parameters},
      {"layers", nullptr, &M::layers, nullptr, true},
      {"hidden", nullptr, &M::hidden, nullptr, true},
      {"heads", nullptr, &M::heads, nullptr, true},
      {"kv_heads", nullptr, &M::kv_heads},
      {"ffn", nullptr, &M::ffn},
      {"vocab", nullptr, &M::vocab},
      {"seq", nullptr, &M::sequence, nullptr, true},
      {"gpu", &M::gpu, nullptr, nullptr, true},
      {"n_gpus", nullptr, &M::gpus, nullptr, true},
      {"tp", nullptr, &M::tp},
      {"cp", nullptr, &M::cp},
      {"pp", nullptr, &M::pp},
      {"vpp", nullptr, &M::virtual_stages},
      {"dp", nullptr, &M::dp},
      {"micro_batch", nullptr, &M::micro_batch},
      {"global_batch_seqs", nullptr, &M::global_batch, nullptr, true},
      {"recompute", &M::recompute},
      {"zero_stage", nullptr, &M::zero},
      {"step_time_s", nullptr, nullptr, &M::step_seconds},
      {"tflops_per_gpu", nullptr, nullptr, &M::tflops_per_gpu},
      {"tflops_kind", &M::tflops_kind},
      {"mfu_pct", nullptr, nullptr, &M::mfu_percent},
      {"memory_gib", nullptr, nullptr, &M::memory_gib},
      {"notes"},
  };
  return all;
}

const Column* find_column(const std::string& name) {
  const auto found = std::find_if(columns().begin(), columns().end(),
                                  [&](const Column& column) { return column.name == name; });
  return found == columns().end() ? nullptr : &*found;
}

std::string_view trimmed(std::string_view text) {
  constexpr std::string_view blanks = " \t";
  const size_t first = text.find_first_not_of(blanks);
  if (first == std::string_view::npos) return "";
  return text.substr(first, text.find_last_not_of(blanks) - first + 1);
}

std::optional<double> number(std::string_view text) {
  double value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size() || !std::isfinite(value)) return std::nullopt;
  return value;
}

// What is multiplied with others stays far from what 64 bits hold.
double most_of(const Column& column) {
  const bool large = column.count == &M::sequence || column.count == &M::vocab || column.count == &M::ffn;
  return large ? 1e9 : 1e6;
}

std::string range_of(const Column& column) {
  if (column.count != nullptr) {
    return fmt::format("a whole number from {} to {}", column.count == &M::zero ? 0 : 1,
                       format_thousands(static_cast<int64_t>(most_of(column))));
  }
  return column.figure == &M::mfu_percent ? "a percentage above 0 and up to 100" : "a number above 0";
}

void read_cell(const Column& column, std::string_view cell, Measurement& row) {
  const std::string text = escaped(trimmed(cell));
  if (column.text != nullptr) row.*column.text = text;
  if (text.empty() || (column.count == nullptr && column.figure == nullptr)) return;
  const std::optional<double> value = number(text);
  if (column.count != nullptr) {
    // Counts may be written as 64.0; zero_stage alone may be 0.
    const double most = most_of(column);
    const double least = column.count == &M::zero ? 0 : 1;
    if (value && *value >= least && *value <= most && *value == std::floor(*value)) {
      row.*column.count = static_cast<int64_t>(*value);
      return;
    }
  } else if (value && *value > 0 && (column.figure != &M::mfu_percent || *value <= 100)) {
    row.*column.figure = *value;
    return;
  }
  row.unreadable.push_back(fmt::format("{} = \"{}\" is not {}: correct the cell, or leave it empty",
                                       column.name, text, range_of(column)));
}

uint64_t hash_of(const std::vector<std::string>& cells) {
  uint64_t hash = 0xCBF29CE484222325u;
  const auto take = [&](char c) { hash = (hash ^ static_cast<unsigned char>(c)) * 0x100000001B3u; };
  for (size_t i = 0; i < cells.size(); ++i) {
    if (i > 0) take(',');
    for (const char c : cells[i]) take(c);
  }
  return hash;
}

void check_columns(const CsvTable& table, Measurements& out) {
  for (const std::string& name : table.columns) {
    if (find_column(name) == nullptr) out.unknown_columns.push_back(escaped(name));
  }
  std::vector<std::string> missing;
  for (const Column& column : columns()) {
    const bool there =
        std::find(table.columns.begin(), table.columns.end(), column.name) != table.columns.end();
    if (column.needed && !there) missing.emplace_back(column.name);
  }
  if (missing.empty()) return;
  std::string text = fmt::format("{}: there is no column {}", out.name, fmt::join(missing, ", "));
  if (!out.unknown_columns.empty()) {
    text += fmt::format("; is it \"{}\"?", nearest_name(missing.front(), out.unknown_columns));
  }
  throw UsageError(text);
}

}  // namespace

Measurements read_measurements(std::string_view text, const std::string& name) {
  const CsvTable table = parse_csv(text, name);
  Measurements out{name, {}, {}};
  check_columns(table, out);
  for (const CsvRow& cells : table.rows) {
    Measurement row;
    row.row = static_cast<int>(out.rows.size()) + 1;
    row.line = cells.line;
    row.hash = hash_of(cells.cells);
    if (cells.cells.size() != table.columns.size()) {
      row.unreadable.push_back(
          fmt::format("it has {} cells under {} columns", cells.cells.size(), table.columns.size()));
    }
    for (size_t i = 0; i < std::min(cells.cells.size(), table.columns.size()); ++i) {
      const Column* column = find_column(table.columns[i]);
      if (column != nullptr) read_cell(*column, cells.cells[i], row);
    }
    out.rows.push_back(std::move(row));
  }
  return out;
}

Measurements own_measurements() {
  const EmbeddedFile& file = embedded_measurements().front();
  return read_measurements(file.content, fmt::format("data/published/{}.csv", file.name));
}

std::vector<int> held_out(const std::vector<const Measurement*>& rows) {
  std::map<std::string, std::vector<const Measurement*>> by_source;
  for (const Measurement* row : rows) by_source[row->source].push_back(row);
  std::vector<int> out;
  for (auto& [source, group] : by_source) {
    if (group.size() < 3) continue;
    std::sort(group.begin(), group.end(), [](const Measurement* a, const Measurement* b) {
      return a->hash != b->hash ? a->hash < b->hash : a->row < b->row;
    });
    const size_t fifth = std::max<size_t>(1, (2 * group.size() + 5) / 10);
    for (size_t i = 0; i < fifth; ++i) out.push_back(group[i]->row);
  }
  std::sort(out.begin(), out.end());
  return out;
}

}  // namespace lockstep::validate
