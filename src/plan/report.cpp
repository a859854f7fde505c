#include "plan/report.hpp"

#include <fmt/format.h>

#include "base/json.hpp"
#include "base/terminal_text.hpp"
#include "base/units.hpp"
#include "model/parameters.hpp"
#include "parallel/program.hpp"
#include "plan/chart.hpp"
#include "plan/memory_text.hpp"

namespace lockstep::plan {

namespace {

std::string state_text(const Plan& plan) {
  const double parameters = static_cast<double>(model::parameter_count(plan.run.model));
  return "\n" +
         filled(fmt::format(
             "The training state is {} over all GPUs as published (2 + 2 + 12 bytes a parameter), {} as "
             "the trainer holds it ({:.0f} bytes).",
             format_bytes(plan.state.published), format_bytes(plan.state.own), plan.state.own / parameters));
}

std::string curve_text(const Plan& plan) {
  std::vector<double> bytes;
  for (const MemoryMoment& moment : plan.curve) bytes.push_back(static_cast<double>(moment.activations));
  return fmt::format("\nActivations of stage {} through the step, after each of its {} passes.\n",
                     plan.memory.fullest().stage, bytes.size()) +
         chart_text(bytes, "B");
}

// "0.095", "58.2", "22.9M".
std::string figure(double value) {
  return value < 999.5 ? fmt::format("{:.3g}", value) : format_count(value);
}

std::string traffic_text(const Plan& plan, const cost::Style& style) {
  const Traffic& t = plan.traffic;
  std::string out = fmt::format(
      "\nWhat a GPU of stage {} hands to messages and collectives in a step, whole tensors counted (as\n"
      "nccl-tests' size).\n",
      t.stage);
  cost::TextTable table(style);
  const config::ParallelConfig& p = plan.run.parallel;
  const auto row = [&](const char* axis, int64_t ranks, const char* what, int64_t bytes) {
    if (ranks == 1) return;
    table.row({fmt::format("{:<9}  {}", axis, what), format_bytes(static_cast<double>(bytes))}, axis);
  };
  row("tp", p.tp, "activations, and gradients of what is replicated", t.tp);
  row("cp", p.cp, "keys and values, and their gradients", t.cp);
  row("pp", p.pp, "hidden states and their gradients", t.pp);
  row("dp", p.dp * p.cp, p.cp > 1 ? "gradients and parameters, over cp too" : "gradients and parameters",
      t.dp);
  return p.world_size() == 1 ? "" : out + table.text();
}

std::string training_text(const Plan& plan, const cost::Style& style) {
  std::string out =
      plan.run.train.batch_ramp.empty()
          ? "\nThe whole training, if every step takes as long and none is lost.\n"
          : "\nThe whole training with its batch ramp, if all steps of a batch take as long and "
            "none is lost.\n";
  cost::TextTable table(style);
  table.row({"tokens", format_count(plan.training.tokens)});
  table.row({"days", figure(plan.training.days)});
  table.row({"GPU-hours", figure(plan.training.gpu_hours)});
  table.row({fmt::format("cost at ${} a GPU-hour", figure(plan.run.cluster.usd_per_gpu_hour)),
             fmt::format("${}", figure(plan.training.usd))});
  if (const std::optional<double> energy = plan.training.megawatt_hours) {
    table.row({"energy", format_quantity(*energy * 1e6, "Wh")});
  }
  return out + table.text();
}

// A step of another batch, as of train.batch_ramp's stages.
StepCost step_cost(config::RunFile run, int64_t sequences) {
  run.train.global_batch = sequences;
  run.train.batch_ramp.clear();
  const parallel::Layout layout(run);
  const StepTime time = step_time(layout, parallel::build_step_programs(layout));
  const std::optional<cost::Power> power = cost::power_of(run, time.split);
  return {time.seconds, power ? std::optional(power->average()) : std::nullopt};
}

}  // namespace

Plan plan_of(const config::RunFile& run) {
  const parallel::Layout layout(run);
  const std::vector<parallel::Program> programs = parallel::build_step_programs(layout);
  const StepTime time = step_time(layout, programs);
  MemoryReport memory = memory_of(layout, programs);
  const parallel::Program& fullest = programs.at(static_cast<size_t>(memory.fullest().stage));
  const Traffic traffic = traffic_of(layout, fullest);
  const std::optional<cost::Power> power = cost::power_of(run, time.split);
  const StepCost whole{time.seconds, power ? std::optional(power->average()) : std::nullopt};
  const Training training = training_of(run, [&](int64_t sequences) {
    return sequences == run.train.global_batch ? whole : step_cost(run, sequences);
  });
  return {run,
          std::move(memory),
          memory_curve(layout, fullest),
          training_state(static_cast<double>(model::parameter_count(run.model)), run.train),
          traffic,
          cost::step_figures(run, time.seconds, time.bubble_fraction, time.split),
          training,
          power};
}

Json plan_json(const Plan& plan) {
  Json json;
  json["layout"] = cost::layout_json(plan.run);
  json["model"] = cost::model_json(plan.run);
  json["memory"] = memory_json(plan.memory);
  json["memory_curve"] = curve_json(plan.curve);
  Json traffic;
  traffic["tp_bytes"] = plan.traffic.tp;
  traffic["cp_bytes"] = plan.traffic.cp;
  traffic["pp_bytes"] = plan.traffic.pp;
  traffic["dp_bytes"] = plan.traffic.dp;
  json["traffic"] = traffic;
  json["step"] = cost::step_json(plan.step);
  json["power"] = cost::power_json(plan.power, plan.step);
  Json training;
  training["tokens"] = plan.training.tokens;
  training["days"] = plan.training.days;
  training["gpu_hours"] = plan.training.gpu_hours;
  training["usd"] = plan.training.usd;
  const std::optional<double> energy = plan.training.megawatt_hours;
  training["energy_megawatt_hours"] = energy ? Json(*energy) : Json(nullptr);
  json["training"] = training;
  return json;
}

std::string plan_text(const Plan& plan, const cost::Style& style) {
  return cost::run_line(plan.run) + "\n" + cost::step_text(plan.step, "computed", style) +
         memory_text(plan.memory, style) + curve_text(plan) + state_text(plan) + traffic_text(plan, style) +
         cost::power_text(plan.run, plan.power, plan.step, style) + training_text(plan, style);
}

}  // namespace lockstep::plan
