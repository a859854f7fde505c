#include "sim/report.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <numeric>

#include "base/json.hpp"
#include "base/units.hpp"
#include "cost/power.hpp"
#include "observe/trace_writer.hpp"

namespace lockstep::sim {

namespace {

std::string phases_text(const StepResult& result, const cost::Style& style) {
  std::string out =
      "\nPhases over all ranks, from the first one's start to the last one's end; they overlap.\n";
  cost::TextTable table(style);
  table.header({"phase", "start", "end"});
  for (const Phase& phase : result.phases) {
    table.row({std::string(phase.name), format_seconds(phase.start), format_seconds(phase.end)}, phase.name);
  }
  return out + table.text();
}

double mean(const std::vector<double>& values) {
  return std::accumulate(values.begin(), values.end(), 0.0) / static_cast<double>(values.size());
}

std::string ranks_text(const parallel::Mesh& mesh, const StepResult& result) {
  const size_t slowest = static_cast<size_t>(result.slowest_rank);
  const double behind = result.behind_seconds[slowest];
  const double own = result.kernel_seconds[slowest] + result.pause_seconds[slowest];
  const double pauses = mean(result.pause_seconds);
  std::string out = "\n";
  if (result.ranks > 1) {
    out += fmt::format("Half of the ranks are done {} or more before the last one, 99 % {} or more.\n",
                       format_seconds(result.seconds - result.seconds_p50),
                       format_seconds(result.seconds - result.seconds_p99));
  }
  if (pauses > 0) {
    out += fmt::format("Hosts pause for {}, mean over ranks; compute has it.\n", format_seconds(pauses));
  }
  if (behind <= 0) return out + "No rank is busier with its own kernels than the others of its stage.\n";
  out += fmt::format("Busiest: {}, {} in its own kernels{}; its stage's median is {}.\n",
                     rank_name(mesh, result.slowest_rank), format_seconds(own),
                     pauses > 0 ? " and pauses" : "", format_seconds(own - behind));
  return out;
}

}  // namespace

std::string rank_name(const parallel::Mesh& mesh, int rank) {
  const parallel::Coordinates c = mesh.coordinates(rank);
  const std::string cp = mesh.size(parallel::Axis::cp) > 1 ? fmt::format(" cp{}", c.cp) : "";
  return fmt::format("rank {}  tp{}{} pp{} dp{}", rank, c.tp, cp, c.pp, c.dp);
}

cost::StepFigures figures_of(const config::RunFile& run, const StepResult& result) {
  return cost::step_figures(run, result.seconds, result.bubble_fraction, result.split);
}

Json simulate_json(const config::RunFile& run, const StepResult& result, const std::vector<double>& steps,
                   const Json& memory) {
  Json json;
  json["layout"] = cost::layout_json(run);
  json["model"] = cost::model_json(run);
  json["memory"] = memory;
  const cost::StepFigures figures = figures_of(run, result);
  json["step"] = cost::step_json(figures);
  json["power"] = cost::power_json(cost::power_of(run, figures.split), figures);
  json["ranks"] = result.ranks;
  json["ops"] = result.ops;
  json["wall_seconds"] = result.wall_seconds;
  json["slowest_rank"] = result.slowest_rank;
  json["seconds_p50"] = result.seconds_p50;
  json["seconds_p99"] = result.seconds_p99;
  json["phases"] = Json::array();
  for (const Phase& phase : result.phases) {
    Json one;
    one["name"] = std::string(phase.name);
    one["start"] = phase.start;
    one["end"] = phase.end;
    json["phases"].push_back(one);
  }
  if (steps.size() > 1) json["steps_seconds"] = steps;
  if (const double pauses = mean(result.pause_seconds); pauses > 0) json["pause_seconds"] = pauses;
  return json;
}

std::string simulate_text(const config::RunFile& run, const StepResult& result,
                          const std::vector<double>& steps, const cost::Style& style) {
  const parallel::Mesh mesh(run);
  std::string out = cost::run_line(run) + "\n";
  const cost::StepFigures figures = figures_of(run, result);
  out += cost::step_text(figures, "simulated", style);
  if (steps.size() > 1) {
    const auto [least, most] = std::minmax_element(steps.begin(), steps.end());
    out += fmt::format("\nMean of {} steps, which take {} to {}.\n", steps.size(), format_seconds(*least),
                       format_seconds(*most));
  }
  out += phases_text(result, style) + ranks_text(mesh, result);
  out += cost::power_text(run, cost::power_of(run, figures.split), figures, style) + "\n";
  out += style.dim(fmt::format("{} rank{}, {} ops evaluated in {}.", format_thousands(result.ranks),
                               result.ranks == 1 ? "" : "s", format_thousands(result.ops),
                               format_seconds(result.wall_seconds))) +
         "\n";
  return out;
}

void write_trace(const std::filesystem::path& path, const parallel::Mesh& mesh,
                 const std::vector<observe::SpanFile>& traces) {
  const std::unique_ptr<observe::TraceWriter> writer = observe::open_trace(path);
  for (const observe::SpanFile& file : traces) {
    writer->process(file.rank, rank_name(mesh, file.rank));
    observe::write_spans(*writer, file);
  }
  writer->close();
}

}  // namespace lockstep::sim
