#include "plan/report.hpp"

#include <fmt/format.h>

#include "base/json.hpp"
#include "base/units.hpp"
#include "model/parameters.hpp"
#include "parallel/program.hpp"

namespace lockstep::plan {

namespace {

std::string state_text(const Plan& plan) {
  const double parameters = static_cast<double>(model::parameter_count(plan.run.model));
  return fmt::format(
      "\nThe training state is {} over all GPUs as published (2 + 2 + 12 bytes a parameter), {} as the\n"
      "trainer holds it ({:.0f} bytes).\n",
      format_bytes(plan.state.published), format_bytes(plan.state.own), plan.state.own / parameters);
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
  std::string out = "\nThe whole training, if every step takes as long and none is lost.\n";
  cost::TextTable table(style);
  table.row({"tokens", format_count(plan.training.tokens)});
  table.row({"days", figure(plan.training.days)});
  table.row({"GPU-hours", figure(plan.training.gpu_hours)});
  table.row({fmt::format("cost at ${} a GPU-hour", figure(plan.run.cluster.usd_per_gpu_hour)),
             fmt::format("${}", figure(plan.training.usd))});
  return out + table.text();
}

}  // namespace

Plan plan_of(const config::RunFile& run) {
  const parallel::Layout layout(run);
  const std::vector<parallel::Program> programs = parallel::build_step_programs(layout);
  const StepTime time = step_time(layout, programs);
  MemoryReport memory = memory_of(layout, programs);
  const Traffic traffic = traffic_of(layout, programs.at(static_cast<size_t>(memory.fullest().stage)));
  return {run,
          std::move(memory),
          training_state(static_cast<double>(model::parameter_count(run.model)), run.train),
          traffic,
          cost::step_figures(run, time.seconds, time.bubble_fraction, time.split),
          training_of(run, time.seconds)};
}

Json plan_json(const Plan& plan) {
  Json json;
  json["layout"] = cost::layout_json(plan.run);
  json["model"] = cost::model_json(plan.run);
  json["memory"] = memory_json(plan.memory);
  Json traffic;
  traffic["tp_bytes"] = plan.traffic.tp;
  traffic["cp_bytes"] = plan.traffic.cp;
  traffic["pp_bytes"] = plan.traffic.pp;
  traffic["dp_bytes"] = plan.traffic.dp;
  json["traffic"] = traffic;
  json["step"] = cost::step_json(plan.step);
  Json training;
  training["tokens"] = plan.training.tokens;
  training["days"] = plan.training.days;
  training["gpu_hours"] = plan.training.gpu_hours;
  training["usd"] = plan.training.usd;
  json["training"] = training;
  return json;
}

std::string memory_text(const MemoryReport& memory, const cost::Style& style) {
  const StageMemory& full = memory.fullest();
  const double capacity = static_cast<double>(memory.capacity);
  std::string out =
      fmt::format("\nMemory of the fullest GPU, at stage {}, when it holds most: {} of {}, {}.\n", full.stage,
                  format_bytes(static_cast<double>(full.total())), format_bytes(capacity),
                  memory.fits() ? style.paint("good", "it fits") : style.paint("bad", "it does not fit"));
  cost::TextTable table(style);
  table.header({"part", "bytes", "of the GPU"});
  const auto row = [&](const std::string& name, int64_t bytes) {
    table.row({name, format_bytes(static_cast<double>(bytes)),
               cost::percent(static_cast<double>(bytes) / capacity)});
  };
  row("weights", full.weights);
  row("gradients", full.gradients);
  const char* const moments[] = {"", ", one moment", ", two moments"};
  row(fmt::format("optimizer (master weights{})", moments[memory.moments]), full.optimizer);
  row("activations", full.activations);
  row("messages on their way", full.messages);
  row("reduced gradients", full.reduced);
  row("workspace of the pass under way", full.workspace);
  row("rotary tables, token places", full.tables);
  if (full.stand_ins > 0) row("stand-ins of weight gradients", full.stand_ins);
  row("margin (assumed)", full.margin);
  row("total", full.total());
  return out + table.text();
}

std::string plan_text(const Plan& plan, const cost::Style& style) {
  return cost::run_line(plan.run) + "\n" + cost::step_text(plan.step, "computed", style) +
         memory_text(plan.memory, style) + state_text(plan) + traffic_text(plan, style) +
         training_text(plan, style);
}

}  // namespace lockstep::plan
