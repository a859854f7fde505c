#include "plan/search_report.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "base/json.hpp"
#include "base/units.hpp"
#include "plan/search.hpp"

namespace lockstep::plan {

namespace {

constexpr size_t most_columns = 100;

// Lines of at most so many columns, broken at spaces; those after the first begin with `indent` spaces.
std::string hanging(const std::string& text, size_t indent) {
  std::string out = text;
  size_t line = 0;
  while (out.size() - line > most_columns) {
    const size_t space = out.rfind(' ', line + most_columns);
    if (space == std::string::npos || space <= line + indent) break;
    out.replace(space, 1, "\n" + std::string(indent, ' '));
    line = space + 1;
  }
  return out;
}

std::string percent_of(double share) { return fmt::format("{:.1f} %", 100 * share); }

std::string recompute_text(const config::ParallelConfig& p) {
  return p.recompute.empty() ? "none" : fmt::format("{}", fmt::join(p.recompute, "+"));
}

using Cells = std::vector<std::string>;

const Cells layout_columns = {"step", "MFU",  "memory",   "tp",   "cp", "pp",       "dp",
                              "V",    "seqs", "schedule", "zero", "SP", "recompute"};

Cells layout_cells(const Plan& plan) {
  const config::ParallelConfig& p = plan.run.parallel;
  return {format_seconds(plan.step.seconds),
          cost::percent(plan.step.mfu),
          format_bytes(bytes_of(plan)),
          std::to_string(p.tp),
          std::to_string(p.cp),
          std::to_string(p.pp),
          std::to_string(p.dp),
          std::to_string(p.virtual_stages),
          std::to_string(p.micro_batch),
          config::to_string(p.schedule),
          std::to_string(p.zero),
          p.tp == 1             ? "-"
          : p.sequence_parallel ? "yes"
                                : "no",
          recompute_text(p)};
}

bool any_equivalents(const std::vector<RankedPlan>& best) {
  return std::any_of(best.begin(), best.end(), [](const auto& one) { return one.equivalents > 0; });
}

std::string best_table(const std::vector<RankedPlan>& best, const cost::Style& style) {
  const bool equivalents = any_equivalents(best);
  cost::TextTable table(style);
  Cells header = layout_columns;
  if (equivalents) header.push_back("equal");
  table.header(header);
  for (const RankedPlan& one : best) {
    Cells row = layout_cells(one.plan);
    if (equivalents) row.push_back(one.equivalents > 0 ? fmt::format("+ {}", one.equivalents) : "-");
    table.row(row);
  }
  return table.text();
}

// What the best table is, and what it does not hold.
std::string best_caption(const SearchResult& result) {
  std::string out = fmt::format(
      "\nThe {} fastest that fit (computed; V: chunks a stage, seqs: a micro-batch).\n", result.best.size());
  if (any_equivalents(result.best)) {
    out += "equal: so many equivalent layouts, of the same tp, cp, pp and dp, have the same figures.\n";
  }
  if (!result.complete) {
    out += "Only the fastest by estimate were planned in full; others may be as fast as the last of these.\n";
  }
  return out;
}

std::string front_table(const std::vector<Plan>& plans, const cost::Style& style) {
  cost::TextTable table(style);
  table.header(layout_columns);
  for (const Plan& plan : plans) table.row(layout_cells(plan));
  return table.text();
}

// As --set takes it: a word, or a list.
std::string recompute_setting(const std::vector<std::string>& recompute) {
  if (recompute.empty()) return "none";
  if (recompute.front() == "full") return "full";
  std::string list;
  for (const std::string& op : recompute) list += fmt::format("{}\"{}\"", list.empty() ? "" : ",", op);
  return fmt::format("'[{}]'", list);
}

// What makes the run file `asked` into a layout, for the command line.
std::string settings_text(const config::RunFile& run, const config::RunFile& asked) {
  const config::ParallelConfig &p = run.parallel, &from = asked.parallel;
  std::vector<std::string> settings;
  const auto set = [&](const char* key, const std::string& value) {
    settings.push_back(fmt::format("--set parallel.{}={}", key, value));
  };
  for (const auto& [key, value] : std::initializer_list<std::pair<const char*, int64_t>>{
           {"tp", p.tp},
           {"cp", p.cp},
           {"pp", p.pp},
           {"dp", p.dp},
           {"virtual_stages", p.virtual_stages},
           {"first_stage_less_layers", p.first_stage_less_layers},
           {"last_stage_less_layers", p.last_stage_less_layers},
           {"micro_batch", p.micro_batch},
           {"zero", p.zero}}) {
    set(key, std::to_string(value));
  }
  set("schedule", config::to_string(p.schedule));
  set("sequence_parallel", p.sequence_parallel ? "true" : "false");
  set("recompute", recompute_setting(p.recompute));
  if (p.gathered_input != from.gathered_input) set("gathered_input", config::to_string(p.gathered_input));
  if (p.gradient_scatter != from.gradient_scatter) {
    set("gradient_scatter", config::to_string(p.gradient_scatter));
  }
  if (p.reshard_after_forward != from.reshard_after_forward) {
    set("reshard_after_forward", p.reshard_after_forward ? "true" : "false");
  }
  if (!asked.train.batch_ramp.empty()) settings.emplace_back("--set 'train.batch_ramp=[]'");
  std::string out;
  size_t column = most_columns;
  for (const std::string& setting : settings) {
    const bool breaks = column + 1 + setting.size() > most_columns;
    out += breaks ? (out.empty() ? "  " : " \\\n  ") : " ";
    column = (breaks ? 2 : column + 1) + setting.size();
    out += setting;
  }
  return out + "\n";
}

std::string held_text(const std::vector<std::string>& held) {
  std::string out = "Held, for --set gives them:";
  for (size_t i = 0; i < held.size(); ++i) out += fmt::format("{} {}", i == 0 ? "" : ",", held[i]);
  return hanging(out + ".", 2) + "\n";
}

std::string neighbours_text(const std::vector<Neighbour>& neighbours) {
  size_t width = 0;
  for (const Neighbour& n : neighbours) width = std::max(width, n.what.size());
  std::string out;
  for (const Neighbour& n : neighbours) {
    out += hanging(fmt::format("  {:<{}}  {}", n.what, width, n.why), width + 4) + "\n";
  }
  return out;
}

// What a run says of its steps and a search, of one batch, does not take.
std::vector<std::string> ignored_keys(const config::RunFile& run) {
  if (run.train.batch_ramp.empty()) return {};
  return {"train.batch_ramp"};
}

Json layout_entry(const Plan& plan) {
  Json json = plan_json(plan);
  json.erase("memory_curve");  // taken out; `plan` of the layout alone has it
  const config::ParallelConfig& p = plan.run.parallel;
  json["layout"]["sequence_parallel"] = p.sequence_parallel && p.tp > 1;
  json["layout"]["first_stage_less_layers"] = p.first_stage_less_layers;
  json["layout"]["last_stage_less_layers"] = p.last_stage_less_layers;
  return json;
}

}  // namespace

Json search_json(const SearchResult& result) {
  Json json;
  json["layouts"] = Json::array();
  for (const RankedPlan& one : result.best) {
    json["layouts"].push_back(layout_entry(one.plan));
    json["layouts"].back()["equivalents"] = one.equivalents;
  }
  json["pareto"] = Json::array();
  for (const Plan& plan : result.front) json["pareto"].push_back(layout_entry(plan));
  json["neighbours"] = Json::array();
  for (const Neighbour& n : result.neighbours) {
    Json entry;
    entry["what"] = n.what;
    entry["why"] = n.why;
    json["neighbours"].push_back(entry);
  }
  if (result.closest) {
    json["reason"] = nothing_fits(result);
    json["closest"] = layout_entry(*result.closest);
  }
  json["held"] = result.held;
  json["ignored"] = ignored_keys(result.run);
  json["evaluated"] = result.evaluated;
  json["left_out"] = result.left_out;
  json["valid"] = result.valid;
  json["complete"] = result.complete;
  json["wall_seconds"] = result.wall_seconds;
  json["largest_difference"] = result.difference;
  return json;
}

std::string search_text(const SearchResult& result, const cost::Style& style) {
  const config::RunFile& run = result.run;
  const Plan& best = result.best.front().plan;
  std::string out = fmt::format(
      "{} on {} {} GPUs, batch {} x {} tokens.\n{} layouts evaluated in memory and time, the ones below "
      "planned in full, in {};\nabout {} fit.\n",
      run.name, format_thousands(run.cluster.gpus), run.cluster.gpu, format_thousands(run.train.global_batch),
      format_thousands(run.train.sequence), format_thousands(result.evaluated),
      format_seconds(result.wall_seconds), format_thousands(result.valid));
  if (result.left_out > 0) {
    out += fmt::format("{} more have over {} passes a step and were left out.\n",
                       format_thousands(result.left_out), format_thousands(most_searched_passes));
  }
  if (!result.held.empty()) out += held_text(result.held);
  for (const std::string& key : ignored_keys(run)) {
    out += fmt::format("{} is left out: every step is of the whole batch.\n", key);
  }
  out += fmt::format("\nThe best: {}, {} of each GPU's {}.\n", format_seconds(best.step.seconds),
                     format_bytes(bytes_of(best)), format_bytes(static_cast<double>(best.memory.capacity)));
  out += best_caption(result);
  out += best_table(result.best, style);
  out += "\nTo plan or simulate the best alone, beside what else this search was given by --set:\n" +
         settings_text(best.run, result.run);
  out += "\nTime against memory: nothing that fits is both faster and smaller than one of these.\n";
  out += front_table(result.front, style);
  out +=
      "\nWhy others lost, each with the best choice of all else (FSDP: zero 3 without tp, cp and pp);\n"
      "where none of a kind fits, the smallest.\n";
  if (result.run.parallel.gradient_scatter == config::GradientScatter::chunk) {
    out +=
        "Gradients of zero 2 and 3 are kept whole until the last micro-batch; less memory:\n"
        "--set parallel.gradient_scatter=micro_batch\n";
  }
  out += neighbours_text(result.neighbours);
  if (result.difference > 0.01) {
    out +=
        fmt::format("\nSearch and plan differ by up to {} on a layout above; the figures are the plan's.\n",
                    percent_of(result.difference));
  }
  return out;
}

}  // namespace lockstep::plan
