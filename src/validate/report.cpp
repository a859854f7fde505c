#include "validate/report.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>

#include "base/json.hpp"
#include "base/terminal_text.hpp"
#include "base/units.hpp"
#include "config/value.hpp"
#include "cost/step_figures.hpp"

namespace lockstep::validate {

namespace {

Json share(double value) { return std::isnan(value) ? Json() : Json(value); }

void add_errors(Json& json, const Errors& e) {
  json["mape_step_time"] = share(e.mean);
  json["max_error"] = share(e.most);
  json["bias"] = share(e.bias);
  json["mape_memory"] = share(e.memory_mean);
  json["held_out_rows"] = e.held_out_rows;
  json["mape_held_out"] = share(e.held_out_mean);
  json["mape_fitted"] = share(e.fitted_mean);
}

Json case_json(const Case& one) {
  Json json;
  json["row"] = one.row.row;
  json["line"] = one.row.line;
  json["source"] = one.row.source;
  json["model"] = one.row.model;
  json["n_gpus"] = one.run.parallel.world_size();
  json["measured"] = one.measured;
  json["measured_by"] = one.measured_by;
  json["predicted"] = one.predicted;
  json["error"] = one.error();
  json["total_bytes"] = one.total_memory;
  json["capacity_bytes"] = one.run.cluster.memory_bytes;
  json["fits"] = one.fits;
  if (one.measured_memory) {
    json["measured_memory_bytes"] = *one.measured_memory;
    json["predicted_memory_bytes"] = *one.predicted_memory;
    json["memory_error"] = *one.memory_error();
  }
  json["held_out"] = one.held_out;
  json["layout"] = cost::layout_json(one.run);
  json["choices"] = one.choices.layouts;
  json["choices_that_fit"] = one.choices.fitting;
  json["slowest_choice"] = one.choices.slowest;
  json["assumed"] = one.assumed;
  return json;
}

// No digit that says nothing, and none without end: "6.7 %", "250 %", "1e+04 %". A wild row keeps the table's
// width.
std::string percent(double value) {
  if (std::isnan(value)) return "-";
  const double size = std::abs(value);
  if (size < 1) return fmt::format("{:.1f} %", 100 * value);
  return size < 10 ? fmt::format("{:.0f} %", 100 * value) : fmt::format("{:.0e} %", 100 * value);
}
std::string signed_percent(double value) { return (value >= 0 ? "+" : "") + percent(value); }
std::string seconds(double value) {
  return value < 1e7 ? format_seconds(value) : fmt::format("{:.2e} s", value);
}

// `label` and what it is of, broken into lines that go on behind the label.
std::string labelled(const std::string& label, const std::string& text) {
  return label + filled(text, terminal_columns, label.size()).substr(label.size());
}

// A text of at most `width` columns: cut, it ends in "…".
std::string shortened(const std::string& text, size_t width) {
  if (columns(text) <= width) return text;
  std::string out;
  for (size_t at = 0; at < text.size();) {
    const std::string one =
        text.substr(at, std::max<size_t>(utf8_length(std::string_view(text).substr(at)), 1));
    if (columns(out) + columns(one) + 1 > width) break;
    out += one;
    at += one.size();
  }
  return out + "…";
}

std::string source_table(const Validation& v, const cost::Style& style) {
  cost::TextTable table(style);
  table.header({"source", "rows", "skipped", "mean", "max", "bias", "memory", "held out", "fitted on"});
  const auto row = [&](const std::string& name, const Errors& e) {
    table.row({shortened(name, 24), std::to_string(e.rows), std::to_string(e.skipped), percent(e.mean),
               percent(e.most), signed_percent(e.bias), percent(e.memory_mean),
               e.held_out_rows == 0 ? "-" : fmt::format("{} ({})", percent(e.held_out_mean), e.held_out_rows),
               percent(e.fitted_mean)});
  };
  for (const std::string& source : v.sources()) row(source, v.errors(source));
  row("all", v.errors());
  return table.text();
}

std::string layout_words(const Case& one) {
  const config::ParallelConfig& p = one.run.parallel;
  return fmt::format("tp {} cp {} pp {}x{} dp {} mb {}", p.tp, p.cp, p.pp, p.virtual_stages, p.dp,
                     p.micro_batch);
}

std::vector<std::string> case_cells(const Case& one) {
  return {fmt::format("{:>4}  {}", one.row.row, one.row.model),
          std::to_string(one.run.parallel.world_size()),
          layout_words(one),
          seconds(one.measured),
          seconds(one.predicted),
          signed_percent(one.error()),
          one.held_out ? "held out" : ""};
}

// Names of models give way where the figures need the width.
std::string case_table(const std::vector<const Case*>& cases, const cost::Style& style) {
  std::vector<std::vector<std::string>> rows = {
      {" row  model", "GPUs", "layout", "measured", "predicted", "error", ""}};
  for (const Case* one : cases) rows.push_back(case_cells(*one));
  constexpr size_t gap = 2;  // before each cell
  size_t figures = gap;
  for (size_t column = 1; column < rows.front().size(); ++column) {
    size_t widest = 0;
    for (const std::vector<std::string>& row : rows) widest = std::max(widest, columns(row[column]));
    figures += gap + widest;
  }
  const size_t room = std::max<size_t>(figures < terminal_columns ? terminal_columns - figures : 0, 12);
  cost::TextTable table(style);
  table.header(rows.front());
  for (size_t i = 0; i < cases.size(); ++i) {
    rows[i + 1].front() = shortened(rows[i + 1].front(), std::min<size_t>(room, 36));
    table.row(rows[i + 1], std::abs(cases[i]->error()) > 0.2 ? "bad" : "");
  }
  return table.text();
}

std::string worst_rows(const Validation& v, const cost::Style& style) {
  constexpr size_t most = 10;
  std::vector<const Case*> order;
  for (const Case& one : v.cases) order.push_back(&one);
  std::sort(order.begin(), order.end(), [](const Case* a, const Case* b) {
    const double x = std::abs(a->error()), y = std::abs(b->error());
    return x != y ? x > y : a->row.row < b->row.row;
  });
  if (order.size() > most) order.resize(most);
  if (order.empty()) return "";
  return "\nThe worst rows.\n" + case_table(order, style);
}

// "rows 1-3, 7".
std::string ranges(const std::string& one, const std::vector<int>& numbers) {
  std::string out;
  for (size_t i = 0; i < numbers.size();) {
    size_t last = i;
    while (last + 1 < numbers.size() && numbers[last + 1] == numbers[last] + 1) ++last;
    out += fmt::format("{}{}", out.empty() ? "" : ", ", numbers[i]);
    if (last > i) out += fmt::format("-{}", numbers[last]);
    i = last + 1;
  }
  return fmt::format("{}{} {}", one, numbers.size() == 1 ? "" : "s", out);
}

// What the planner's memory model does not let into its GPUs, though it was run.
std::string rows_that_do_not_fit(const Validation& v) {
  std::vector<int> rows;
  const Case* fullest = nullptr;
  const auto over = [](const Case& one) { return one.total_memory / one.run.cluster.memory_bytes; };
  for (const Case& one : v.cases) {
    if (one.fits) continue;
    rows.push_back(one.row.row);
    if (fullest == nullptr || over(one) > over(*fullest)) fullest = &one;
  }
  if (rows.empty()) return "";
  return "\n" + filled(fmt::format("{} would not fit by plan's memory, the fullest with {} of {}: {}.",
                                   rows.size() == 1 ? "1 row" : fmt::format("{} rows", rows.size()),
                                   format_bytes(fullest->total_memory),
                                   format_bytes(fullest->run.cluster.memory_bytes), ranges("row", rows)));
}

std::string skipped_rows(const Validation& v) {
  if (v.skipped.empty()) return "";
  struct Places {
    std::vector<int> rows, lines;
  };
  std::map<std::string, Places> by_reason;
  for (const Skipped& one : v.skipped) {
    by_reason[one.reason].rows.push_back(one.row.row);
    by_reason[one.reason].lines.push_back(one.row.line);
  }
  std::string out = fmt::format("\nSkipped, {}:\n",
                                v.skipped.size() == 1 ? "1 row" : fmt::format("{} rows", v.skipped.size()));
  for (const auto& [reason, places] : by_reason) {
    out += labelled(
        "  ", fmt::format("{}: {} ({})", reason, ranges("row", places.rows), ranges("line", places.lines)));
  }
  return out;
}

std::string every_row(const Validation& v, const cost::Style& style) {
  std::string out = "\nEvery row, and what was assumed of it.\n";
  for (const Case& one : v.cases) {
    out += "\n";
    for (const std::string& line : wrapped(fmt::format("row {}: {}, {}, {} GPUs", one.row.row, one.row.source,
                                                       one.row.model, one.run.parallel.world_size()),
                                           terminal_columns)) {
      out += style.bold(line) + "\n";
    }
    out += fmt::format("  {}; measured {}, predicted {}, {}{}\n", layout_words(one), seconds(one.measured),
                       seconds(one.predicted), signed_percent(one.error()), one.held_out ? ", held out" : "");
    out += labelled("  measured: ", one.measured_by);
    out += fmt::format("  memory by plan: {} of {}{}\n", format_bytes(one.total_memory),
                       format_bytes(one.run.cluster.memory_bytes), one.fits ? "" : ", which does not fit");
    if (one.measured_memory) {
      out += fmt::format("  memory: measured {}, predicted {}, {}\n", format_bytes(*one.measured_memory),
                         format_bytes(*one.predicted_memory), signed_percent(*one.memory_error()));
    }
    for (const std::string& line : one.assumed) out += labelled("  assumed: ", line);
  }
  return out;
}

}  // namespace

Json validation_json(const Validation& v) {
  Json json;
  const Errors all = v.errors();
  json["file"] = v.file;
  json["set"] = v.settings;
  json["rows"] = all.rows;
  json["predicted"] = all.rows - all.skipped;
  json["skipped"] = Json::array();
  for (const Skipped& one : v.skipped) {
    Json row;
    row["row"] = one.row.row;
    row["line"] = one.row.line;
    row["source"] = one.row.source;
    row["model"] = one.row.model;
    row["n_gpus"] = one.row.gpus ? Json(*one.row.gpus) : Json();
    row["reason"] = one.reason;
    json["skipped"].push_back(std::move(row));
  }
  json["unknown_columns"] = v.unknown_columns;
  add_errors(json, all);
  json["by_source"] = Json::object();
  for (const std::string& source : v.sources()) {
    const Errors e = v.errors(source);
    Json& part = json["by_source"][source];
    part["rows"] = e.rows;
    part["skipped"] = e.skipped;
    add_errors(part, e);
  }
  json["cases"] = Json::array();
  for (const Case& one : v.cases) json["cases"].push_back(case_json(one));
  return json;
}

std::string validation_text(const Validation& v, bool rows, const cost::Style& style) {
  std::string out = filled(fmt::format(
      "{}: step times predicted by `lockstep plan`'s model. Errors are predicted / measured - 1; mean "
      "and max without sign. Held-out rows took no part in fitting the presets.",
      escaped(v.file)));
  for (const std::string& setting : v.settings) {
    out += labelled("Set on every row: ", escaped(config::shortened(setting)));
  }
  out += source_table(v, style) + rows_that_do_not_fit(v) + worst_rows(v, style) + skipped_rows(v);
  if (!v.unknown_columns.empty()) {
    out += "\n" +
           labelled("Columns that were not read: ", fmt::format("{}", fmt::join(v.unknown_columns, ", ")));
  }
  if (rows) return out + every_row(v, style);
  return out + "\n--rows prints every row, with what was assumed where its cells are empty.\n";
}

}  // namespace lockstep::validate
