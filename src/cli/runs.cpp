// lockstep runs, lockstep runs export RUN
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <optional>

#include "base/error.hpp"
#include "base/json.hpp"
#include "base/units.hpp"
#include "cli/commands.hpp"
#include "cli/flags.hpp"
#include "cli/output.hpp"
#include "cli/prediction.hpp"
#include "observe/run_folder.hpp"
#include "observe/run_store.hpp"
#include "resilience/run_lock.hpp"

namespace lockstep::cli {

namespace {

namespace fs = std::filesystem;

struct RunRow {
  std::string folder, name, state;
  int64_t steps_done = 0, steps = 0;
  double last_loss = std::nan("");
  std::string eval_loss;               // empty: none
  double step_seconds = std::nan("");  // the middle of the steady ones
  std::optional<observe::Prediction> prediction;
};

RunRow read_store(const fs::path& folder) {
  const observe::RunStore store = observe::RunStore::open(folder / "run.db");
  RunRow row;
  row.folder = folder.string();
  row.name = store.meta("name").value_or("");
  row.state = store.meta("state").value_or("unknown");
  // A launcher that was killed could not write its end down.
  if (row.state == "running" && !resilience::RunLock::held(folder)) row.state = "killed";
  const auto steps = store.steps();
  row.steps_done = steps.empty() ? 0 : steps.back().step;
  row.steps = std::stoll(store.meta("steps").value_or("0"));
  if (!steps.empty()) row.last_loss = steps.back().loss;
  row.eval_loss = store.meta("eval_loss").value_or("");
  row.step_seconds = median_step_seconds(steps, std::stoll(store.meta("first_steady_step").value_or("4")));
  row.prediction = store.prediction();
  return row;
}

// A store that cannot be read does not hide the other runs.
RunRow read_row(const fs::path& folder) {
  try {
    return read_store(folder);
  } catch (const RunError& error) {
    log(error.what());
    RunRow row;
    row.folder = folder.string();
    row.state = "unreadable";
    return row;
  }
}

std::vector<fs::path> run_folders(const fs::path& parent) {
  std::vector<fs::path> out;
  std::error_code error;
  for (const auto& entry : fs::directory_iterator(parent, error)) {
    if (fs::is_regular_file(entry.path() / "run.db", error)) out.push_back(entry.path());
  }
  // Time of the folder's start, as its run file was written then and never again.
  std::sort(out.begin(), out.end(), [](const fs::path& a, const fs::path& b) {
    std::error_code ignored;
    const auto ta = fs::last_write_time(a / "run.toml", ignored),
               tb = fs::last_write_time(b / "run.toml", ignored);
    return ta != tb ? ta < tb : a < b;
  });
  return out;
}

std::string short_number(double value) { return std::isnan(value) ? "-" : fmt::format("{:.4f}", value); }

std::string short_seconds(double value) { return std::isnan(value) ? "-" : format_seconds(value); }

double predicted_seconds(const RunRow& row) {
  return row.prediction ? row.prediction->seconds : std::nan("");
}

void print_table(const std::vector<RunRow>& rows, const std::string& parent) {
  if (rows.empty()) {
    print(fmt::format("no runs in {}; `lockstep train configs/tiny.toml` makes one\n", parent));
    return;
  }
  size_t width = 6;
  for (const RunRow& row : rows) width = std::max(width, row.folder.size());
  std::string text = fmt::format("{:<{}}  {:<11}  {:>13}  {:>9}  {:>9}  {}  {}\n", "folder", width, "state",
                                 "steps", "loss", "held-out", right("a step", 9), right("predicted", 9));
  for (const RunRow& row : rows) {
    text += fmt::format("{:<{}}  {:<11}  {:>13}  {:>9}  {:>9}  {}  {}\n", row.folder, width, row.state,
                        fmt::format("{}/{}", row.steps_done, row.steps), short_number(row.last_loss),
                        row.eval_loss.empty() ? "-" : short_number(std::stod(row.eval_loss)),
                        right(short_seconds(row.step_seconds), 9),
                        right(short_seconds(predicted_seconds(row)), 9));
  }
  print(text);
}

Json rows_json(const std::vector<RunRow>& rows) {
  Json out = Json::array();
  for (const RunRow& row : rows) {
    Json one = {{"run_directory", row.folder},
                {"name", row.name},
                {"state", row.state},
                {"steps_done", row.steps_done},
                {"steps", row.steps}};
    one["last_loss"] = row.last_loss;  // NaN prints as null
    one["eval_loss"] = row.eval_loss.empty() ? Json() : Json(std::stod(row.eval_loss));
    one["step_seconds"] = row.step_seconds;  // the median after the warm-up
    one["predicted_step_seconds"] = predicted_seconds(row);
    one["predicted_with"] = row.prediction ? Json(row.prediction->cluster) : Json();
    out.push_back(std::move(one));
  }
  return out;
}

// Of a step whose waits never all came: null in JSON, nothing in CSV.
void add_waits(Json& out, const std::string& what, const std::optional<observe::ExposedSeconds>& s) {
  out[what + "_tp"] = s ? s->tp : std::nan("");
  out[what + "_cp"] = s ? s->cp : std::nan("");
  out[what + "_pp"] = s ? s->pp : std::nan("");
  out[what + "_dp"] = s ? s->dp : std::nan("");
}

// Doubles read back exactly; a NaN leaves its field empty, and the infinities, which JSON shows as null,
// stay.
std::string csv_field(const Json& value) {
  if (!value.is_number_float() || std::isfinite(value.get<double>())) return value.dump();
  if (std::isnan(value.get<double>())) return "";
  return value.get<double>() > 0 ? "inf" : "-inf";
}

Json step_json(const observe::StepRecord& r) {
  Json out = {{"step", r.step},
              {"loss", r.loss},
              {"grad_norm", r.grad_norm},
              {"lr", r.lr},
              {"tokens", r.tokens},
              {"seconds", r.seconds},
              {"memory_bytes", r.memory_bytes},
              {"tokens_per_second", r.tokens_per_second},
              {"tflops", r.tflops},
              {"mfu", r.mfu},
              {"mfu_causal", r.mfu_causal},
              {"skipped", r.skipped}};
  using Part = std::optional<observe::ExposedSeconds>;
  add_waits(out, "exposed", r.waits ? Part(r.waits->exposed) : Part());
  add_waits(out, "under_way", r.waits ? Part(r.waits->under_way) : Part());
  return out;
}

}  // namespace

int runs(const Arguments& arguments) {
  std::string parent = "runs";
  bool json = false;
  Flags flags("runs", "lockstep runs --dir runs");
  flags.text(parent, "--dir", "DIR", "the folder that holds the run folders")
      .toggle(json, "--json", "one JSON document on standard output");
  if (!flags.parse(arguments)) return exit_ok;
  std::vector<RunRow> rows;
  for (const fs::path& folder : run_folders(parent)) rows.push_back(read_row(folder));
  if (json) {
    print_json(rows_json(rows));
  } else {
    print_table(rows, parent);
  }
  return exit_ok;
}

int runs_export(const Arguments& arguments) {
  std::string folder;
  bool json = false;
  Flags flags("runs export", "lockstep runs export runs/tiny-20261129-142205-3fa2c1 > steps.csv");
  flags.required(folder, "RUN", "a run folder").toggle(json, "--json", "a JSON list instead of CSV");
  if (!flags.parse(arguments)) return exit_ok;
  const auto store = observe::RunStore::open(observe::RunFolder::open(folder).database());
  Json list = Json::array();
  for (const observe::StepRecord& record : store.steps()) list.push_back(step_json(record));
  if (json) {
    print_json(list);
    return exit_ok;
  }
  // Headed by the names of the JSON.
  const Json names = step_json({});
  std::string line;
  for (const auto& [name, value] : names.items()) line += (line.empty() ? "" : ",") + name;
  print(line + "\n");
  for (const Json& record : list) {
    line.clear();
    for (const auto& [name, value] : record.items()) {
      line += (line.empty() ? "" : ",") + csv_field(value);
    }
    print(line + "\n");
  }
  return exit_ok;
}

}  // namespace lockstep::cli
