#include "cost/power.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "base/json.hpp"
#include "base/units.hpp"

namespace lockstep::cost {

std::optional<Power> power_of(const config::RunFile& run, const StepSplit& split) {
  const config::ClusterConfig& c = run.cluster;
  const double seconds = split.total();
  if (c.gpu_compute_watts <= 0 || !(seconds > 0)) return std::nullopt;
  const double gpus = static_cast<double>(run.parallel.world_size());
  const int64_t nodes = (run.parallel.world_size() + c.gpus_per_node - 1) / c.gpus_per_node;
  const double computing = split.compute + split.optimizer;
  const double communicating = split.tp + split.cp + split.pp + split.dp;
  const double waiting = split.bubble + split.data + split.barrier;
  Power p;
  p.one_gpu = (computing * c.gpu_compute_watts + communicating * c.gpu_communication_watts +
               waiting * c.gpu_idle_watts) /
              seconds;
  p.gpus = gpus * p.one_gpu;
  p.hosts = static_cast<double>(nodes) * c.host_watts_per_node;
  p.network = gpus * c.network_watts_per_gpu;
  p.overhead = (c.pue - 1) * (p.gpus + p.hosts + p.network);
  const double most = std::max({c.gpu_compute_watts, c.gpu_communication_watts, c.gpu_idle_watts});
  p.peak = c.pue * (gpus * most + p.hosts + p.network);
  return p;
}

double megawatt_hours(double watts, double days) { return watts / 1e6 * 24 * days; }

Json power_json(const std::optional<Power>& power, const StepFigures& step) {
  if (!power) return nullptr;
  Json json;
  json["average_megawatts"] = power->average() / 1e6;
  json["peak_megawatts"] = power->peak / 1e6;
  json["gpus_megawatts"] = power->gpus / 1e6;
  json["hosts_megawatts"] = power->hosts / 1e6;
  json["network_megawatts"] = power->network / 1e6;
  json["overhead_megawatts"] = power->overhead / 1e6;
  json["gpu_average_watts"] = power->one_gpu;
  json["joules_per_step"] = power->average() * step.seconds;
  json["joules_per_token"] = power->average() / step.tokens_per_second;
  return json;
}

std::string power_text(const config::RunFile& run, const std::optional<Power>& power, const StepFigures& step,
                       const Style& style) {
  if (!power) return "\nPower is not known: cluster.gpu_compute_watts is 0.\n";
  const auto watts = [](double value) { return format_quantity(value, "W"); };
  std::string out = fmt::format(
      "\nPower at the meter: {}, mean over the step; {} when all GPUs compute at once.\n{} a step, {} a "
      "token.\n",
      style.bold(watts(power->average())), watts(power->peak),
      format_quantity(power->average() * step.seconds, "J"),
      format_quantity(power->average() / step.tokens_per_second, "J"));
  TextTable table(style);
  table.header({"part", "power", "of all"});
  const auto row = [&](const std::string& name, double value) {
    table.row({name, watts(value), percent(value / power->average())});
  };
  row(fmt::format("GPUs       {} each, computing, communicating, waiting", watts(power->one_gpu)),
      power->gpus);
  row("hosts      processors, memory, NICs, fans", power->hosts);
  row("network    switches and optics", power->network);
  row(fmt::format("overhead   cooling and losses, PUE {}", run.cluster.pue), power->overhead);
  return out + table.text();
}

}  // namespace lockstep::cost
