#include "plan/search_report.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <set>

#include "base/error.hpp"
#include "base/json.hpp"
#include "base/units.hpp"
#include "plan/search_ranking.hpp"

namespace lockstep::plan {

namespace {

constexpr size_t most_shown = 20, most_kept = 50, most_of_front = 12;

double bytes_of(const Plan& plan) { return static_cast<double>(plan.memory.fullest().total()); }

std::string percent_of(double share) { return fmt::format("{:.1f} %", 100 * share); }

// The full plan of a layout of the search, and how far from it the search was.
Plan plan_again(const LayoutSearch& search, const Ranked& ranked, double& difference) {
  Plan plan = plan_of(search.run_of(ranked.layout));
  difference = std::max({difference, std::abs(ranked.evaluation.seconds / plan.step.seconds - 1),
                         std::abs(ranked.evaluation.bytes / bytes_of(plan) - 1)});
  return plan;
}

std::string does_not_fit(const Plan& plan) {
  return fmt::format("does not fit: {} of {}", format_bytes(bytes_of(plan)),
                     format_bytes(static_cast<double>(plan.memory.capacity)));
}

// What takes most more of the step than in the best layout.
std::string why_slower(const Plan& plan, const Plan& best) {
  constexpr std::array<std::string_view, 9> words = {"waiting for data", "computing", "tp waits",
                                                     "cp waits",         "pp waits",  "dp waits",
                                                     "bubble",           "optimizer", "barrier"};
  const auto of = plan.step.split.values(), of_best = best.step.split.values();
  size_t most = 0;
  for (size_t i = 1; i < words.size(); ++i) {
    if (of[i] - of_best[i] > of[most] - of_best[most]) most = i;
  }
  const double slower = plan.step.seconds / best.step.seconds - 1;
  if (slower < 0.0005) return "as fast";
  return fmt::format("{} slower: {} {} against {}", percent_of(slower), words[most], format_seconds(of[most]),
                     format_seconds(of_best[most]));
}

std::string why(const Plan& plan, const Plan& best) {
  return plan.memory.fits() ? why_slower(plan, best) : does_not_fit(plan);
}

std::string cut_of(const config::RunFile& run) {
  const config::ParallelConfig& p = run.parallel;
  return fmt::format("tp {} cp {} pp {} dp {}", p.tp, p.cp, p.pp, p.dp);
}

// Cuts near the best one, each with the best of everything else.
std::vector<Neighbour> neighbours_of(const LayoutSearch& search, const Ranking& ranking,
                                     const config::RunFile& run, const Plan& best, double& difference) {
  std::vector<Neighbour> out;
  const Plan own = plan_of(run);
  out.push_back({fmt::format("the run file's own ({})", cut_of(run)), why(own, best)});
  const SearchLayout& top = ranking.best().front().layout;
  const Ranking::Cut cut{top.tp, top.cp, top.pp, top.virtual_stages == 1, top.zero == 3};
  const auto add = [&](const std::string& what, auto fits_in) {
    std::optional<Ranked> found;
    const double capacity = static_cast<double>(best.memory.capacity);
    const auto better = [&](const Ranked& a, const Ranked& b) {
      const bool fits = a.evaluation.bytes <= capacity, other = b.evaluation.bytes <= capacity;
      if (fits != other) return fits;
      return fits ? a.evaluation.seconds < b.evaluation.seconds : a.evaluation.bytes < b.evaluation.bytes;
    };
    for (const bool one_chunk : {false, true}) {
      for (const bool zero_3 : {false, true}) {
        Ranking::Cut other = cut;
        other.one_chunk = one_chunk;
        other.zero_3 = zero_3;
        if (!fits_in(other)) continue;
        const auto ranked = ranking.best_of(other);
        if (ranked && (!found || better(*ranked, *found))) found = ranked;
      }
    }
    if (!found) return out.push_back({what, "no valid layout has it"});
    const Plan plan = plan_again(search, *found, difference);
    out.push_back({fmt::format("{} ({})", what, cut_of(plan.run)), why(plan, best)});
  };
  const auto with = [](int64_t Ranking::Cut::*axis, int64_t value) {
    return [=](Ranking::Cut& c) {
      c.*axis = value;
      return true;
    };
  };
  add("tp x 2", with(&Ranking::Cut::tp, 2 * top.tp));
  if (top.tp > 1) add("tp / 2", with(&Ranking::Cut::tp, top.tp / 2));
  add("pp x 2", with(&Ranking::Cut::pp, 2 * top.pp));
  if (top.pp % 2 == 0) add("pp / 2", with(&Ranking::Cut::pp, top.pp / 2));
  if (top.virtual_stages > 1) add("one chunk a stage", [](Ranking::Cut& c) { return c.one_chunk; });
  add("FSDP alone", [](Ranking::Cut& c) {
    c.tp = c.cp = c.pp = 1;
    return c.zero_3;
  });
  return out;
}

std::string recompute_text(const config::ParallelConfig& p) {
  return p.recompute.empty() ? "none" : fmt::format("{}", fmt::join(p.recompute, "+"));
}

std::string layouts_table(const std::vector<Plan>& plans, const cost::Style& style) {
  cost::TextTable table(style);
  table.header(
      {"step", "MFU", "memory", "tp", "cp", "pp", "dp", "V", "seqs", "schedule", "zero", "SP", "recompute"});
  for (const Plan& plan : plans) {
    const config::ParallelConfig& p = plan.run.parallel;
    table.row({format_seconds(plan.step.seconds), cost::percent(plan.step.mfu), format_bytes(bytes_of(plan)),
               std::to_string(p.tp), std::to_string(p.cp), std::to_string(p.pp), std::to_string(p.dp),
               std::to_string(p.virtual_stages), std::to_string(p.micro_batch), config::to_string(p.schedule),
               std::to_string(p.zero),
               p.tp == 1             ? "-"
               : p.sequence_parallel ? "yes"
                                     : "no",
               recompute_text(p)});
  }
  return table.text();
}

// What makes the run file into a layout, for the command line.
std::string settings_text(const config::RunFile& run) {
  const config::ParallelConfig& p = run.parallel;
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
  std::string again;
  for (const std::string& op : p.recompute) again += fmt::format("{}\"{}\"", again.empty() ? "" : ",", op);
  set("recompute", fmt::format("'[{}]'", again));
  constexpr size_t most_columns = 100;
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

Json layout_entry(const Plan& plan) {
  Json json = plan_json(plan);
  json.erase("memory_curve");  // `plan` of the layout alone has it
  const config::ParallelConfig& p = plan.run.parallel;
  json["layout"]["sequence_parallel"] = p.sequence_parallel && p.tp > 1;
  json["layout"]["first_stage_less_layers"] = p.first_stage_less_layers;
  json["layout"]["last_stage_less_layers"] = p.last_stage_less_layers;
  return json;
}

}  // namespace

SearchResult search_layouts(const config::RunFile& run) {
  const auto start = std::chrono::steady_clock::now();
  LayoutSearch search(run, {run.train.global_batch});
  Ranking ranking(run.cluster.memory_bytes, most_kept);
  search.run_over(run.parallel.world_size(), ranking);
  SearchResult result;
  result.run = run;
  result.evaluated = ranking.evaluated();
  result.valid = ranking.valid();
  result.wall_seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  if (ranking.evaluated() == 0) {
    throw RunError(fmt::format(
        "no layout of {} GPUs is valid: train.global_batch = {} must be a multiple of some dp x micro_batch",
        run.parallel.world_size(), run.train.global_batch));
  }
  if (ranking.best().empty()) {
    const Plan smallest = plan_of(search.run_of(ranking.smallest()->layout));
    throw RunError(fmt::format("none of {} layouts fits; the smallest ({}) {}; give it more cluster.gpus",
                               format_thousands(result.evaluated), cut_of(smallest.run),
                               does_not_fit(smallest)));
  }
  for (const Ranked& ranked : ranking.best()) {
    if (result.best.size() == most_shown) break;
    result.best.push_back(plan_again(search, ranked, result.difference));
  }
  std::stable_sort(result.best.begin(), result.best.end(),
                   [](const Plan& a, const Plan& b) { return a.step.seconds < b.step.seconds; });
  const std::vector<Ranked>& front = ranking.front();
  const size_t shown = std::min(front.size(), most_of_front);
  for (size_t i = 0; i < shown; ++i) {  // evenly, both ends among them
    const size_t at = shown == 1 ? 0 : i * (front.size() - 1) / (shown - 1);
    result.front.push_back(plan_again(search, front[at], result.difference));
  }
  result.neighbours = neighbours_of(search, ranking, run, result.best.front(), result.difference);
  return result;
}

Json search_json(const SearchResult& result) {
  Json json;
  json["layouts"] = Json::array();
  for (const Plan& plan : result.best) json["layouts"].push_back(layout_entry(plan));
  json["pareto"] = Json::array();
  for (const Plan& plan : result.front) json["pareto"].push_back(layout_entry(plan));
  json["neighbours"] = Json::array();
  for (const Neighbour& n : result.neighbours) {
    Json entry;
    entry["what"] = n.what;
    entry["why"] = n.why;
    json["neighbours"].push_back(entry);
  }
  json["evaluated"] = result.evaluated;
  json["valid"] = result.valid;
  json["wall_seconds"] = result.wall_seconds;
  json["largest_difference"] = result.difference;
  return json;
}

std::string search_text(const SearchResult& result, const cost::Style& style) {
  const config::RunFile& run = result.run;
  const Plan& best = result.best.front();
  std::string out = fmt::format(
      "{} on {} {} GPUs, batch {} x {} tokens.\n{} layouts evaluated in memory and time in {}; {} fit.\n",
      run.name, format_thousands(run.parallel.world_size()), run.cluster.gpu,
      format_thousands(run.train.global_batch), format_thousands(run.train.sequence),
      format_thousands(result.evaluated), format_seconds(result.wall_seconds),
      format_thousands(result.valid));
  out += fmt::format("\nThe best: {}, {} of each GPU's {}.\n", format_seconds(best.step.seconds),
                     format_bytes(bytes_of(best)), format_bytes(static_cast<double>(best.memory.capacity)));
  out += fmt::format("\nThe {} fastest that fit (computed; V: chunks a stage, seqs: a micro-batch).\n",
                     result.best.size());
  out += layouts_table(result.best, style);
  out += "\nTo plan or simulate the best alone:\n" + settings_text(best.run);
  out += "\nTime against memory: nothing that fits is both faster and smaller than one of these.\n";
  out += layouts_table(result.front, style);
  out += "\nWhy others lost, each with the best choice of all else (FSDP: zero 3 without tp, cp and pp).\n";
  cost::TextTable table(style);
  size_t width = 0;
  for (const Neighbour& n : result.neighbours) width = std::max(width, n.what.size());
  for (const Neighbour& n : result.neighbours) {
    out += fmt::format("  {:<{}}  {}\n", n.what, width, n.why);
  }
  if (result.difference > 0.01) {
    out +=
        fmt::format("\nSearch and plan differ by up to {} on a layout above; the figures are the plan's.\n",
                    percent_of(result.difference));
  }
  return out;
}

}  // namespace lockstep::plan
