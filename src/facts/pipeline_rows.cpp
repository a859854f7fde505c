#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

#include "cost/text.hpp"
#include "facts/rows.hpp"

namespace lockstep::facts {

namespace {

using config::ScheduleKind;

constexpr int stages = 16;

// A schedule walked with equal chunks whose backward takes twice their forward, messages free: the very
// schedule that planner and simulator run.
struct Walked {
  double window = 0;  // first forward to last backward
  double busy = 0;    // of one stage

  double idle_share() const { return 1 - busy / window; }
  double idle_over_busy() const { return window / busy - 1; }
};

Walked walk(ScheduleKind kind, int chunks, int micro_batches) {
  const parallel::Schedule schedule = parallel::build_schedule(kind, stages, chunks, micro_batches);
  const std::vector<double> one(static_cast<size_t>(schedule.chunks()), 1.0);
  const double window = parallel::pipeline_window(schedule, {one, one, one});
  return {window, 3.0 * micro_batches * chunks};
}

// The same for the simulator: as many micro-batches of a model of the 405B's width, eight layers a chunk. Its
// chunks are equal but for the embedding and a small output matrix.
std::vector<std::string> nearly_equal_chunks(const char* schedule, int chunks, int micro_batches) {
  return {"parallel.tp=1",
          "parallel.dp=1",
          fmt::format("parallel.pp={}", stages),
          fmt::format("cluster.gpus={}", stages),
          fmt::format("parallel.schedule={}", schedule),
          fmt::format("parallel.virtual_stages={}", chunks),
          "parallel.first_stage_less_layers=0",
          "parallel.last_stage_less_layers=0",
          fmt::format("model.layers={}", 8 * stages * chunks),
          "model.vocab=1024",
          "parallel.zero=0",
          fmt::format("train.global_batch={}", micro_batches),
          "simulate.jitter=false"};
}

// Prints the idle share as "pipeline bubble".
std::string simulating(const std::vector<std::string>& settings) {
  return fmt::format("lockstep simulate {} --set {}", run_405b_file, fmt::join(settings, " --set "));
}

double simulated_idle_share(const char* schedule, int chunks, int micro_batches) {
  const config::RunFile run = run_405b(nearly_equal_chunks(schedule, chunks, micro_batches));
  const parallel::Layout layout(run);
  return sim::simulate_step(layout, parallel::build_step_programs(layout), sim::step_options(run.simulate))
      .bubble_fraction;
}

Fact tp_all_reduces() {
  const parallel::Layout layout(run_405b({"parallel.sequence_parallel=false", "parallel.recompute=none"}));
  const auto count = [](const std::vector<model::Op>& ops) {
    return static_cast<double>(std::count_if(ops.begin(), ops.end(), [](const model::Op& op) {
      return op.kind == model::OpKind::all_reduce && op.axis == model::Axis::tp;
    }));
  };
  const double forward = count(layout.layers().layer_forward());
  const double backward =
      count(layout.layers().layer_backward_input({})) + count(layout.layers().layer_backward_weight({}));
  return {
      .id = "tp-allreduce",
      .group = Group::pipeline,
      .sources = "B",
      .claim = {"Tensor parallel all-reduces twice a layer forward and twice backward.",
                "张量并行每层前向两次、反向两次 all-reduce。"},
      .stated = {"2; 2", "2；2"},
      .figures = {{digits(2, 0.5), forward}, {digits(2, 0.5), backward}},
      .unit = "all-reduces",
      .shown = {fmt::format("{:.0f}; {:.0f}", forward, backward),
                fmt::format("{:.0f}；{:.0f}", forward, backward)},
      .decided = {},
      .why = {"Counted in the layer program. With sequence parallel each becomes a reduce-scatter and an "
              "all-gather of the same bytes.",
              "在层程序中数得。用序列并行时，每次变为字节数相同的 reduce-scatter 加 all-gather。"},
      .formula = {"all-reduces over tp in layer_forward, layer_backward_input and layer_backward_weight",
                  "layer_forward、layer_backward_input、layer_backward_weight 中 tp 上的 all-reduce 个数"},
      .inputs = {"parallel.sequence_parallel = false, no recomputation",
                 "parallel.sequence_parallel = false，不重算"},
      .command = "lockstep simulate " + run_405b_file + " --set parallel.sequence_parallel=false"};
}

Fact bubble() {
  const std::vector<std::pair<int, double>> cases = {{16, 48}, {64, 19}, {128, 10.5}};
  std::vector<Figure> figures;
  std::string shown, simulated, formula;
  for (const auto& [m, stated] : cases) {
    const double share = walk(ScheduleKind::gpipe, 1, m).idle_share();
    const double closed = (stages - 1.0) / (m + stages - 1.0);
    figures.push_back({digits(stated, stated == 10.5 ? 0.1 : 1), 100 * share});
    const char* comma = shown.empty() ? "" : "; ";
    shown += comma + cost::percent(share);
    formula += comma + cost::percent(closed);
    simulated += comma + cost::percent(simulated_idle_share("gpipe", 1, m));
  }
  return {
      .id = "bubble",
      .group = Group::pipeline,
      .sources = "B",
      .claim = {"GPipe with 16 stages idles 48, 19 and 10.5 % at 16, 64 and 128 micro-batches.",
                "GPipe 16 级，微批为 16、64、128 时空闲 48 %、19 %、10.5 %。"},
      .stated = {"48 %; 19 %; 10.5 %", "48 %；19 %；10.5 %"},
      .figures = std::move(figures),
      .unit = "%",
      .shown = {shown, shown},
      .decided = {},
      .why = {fmt::format("From the schedule, equal stages; (p - 1) / (m + p - 1) gives {}; a simulated run "
                          "of nearly equal stages {}.",
                          formula, simulated),
              fmt::format(
                  "由调度表得出，各级相等；(p - 1) / (m + p - 1) 给出 {}；各级近乎相等的模拟给出 {}。",
                  formula, simulated)},
      .formula = same("(p - 1) / (m + p - 1)"),
      .inputs = {"p = 16; m = 16, 64, 128", "p = 16；m = 16、64、128"},
      .command = simulating(nearly_equal_chunks("gpipe", 1, stages)) +
                 "   # \"pipeline bubble\"; the others with train.global_batch = 64 and 128"};
}

Fact bubble_four_times() {
  const double share = walk(ScheduleKind::gpipe, 1, 4 * stages).idle_share();
  Stated negligible = below(5);
  negligible.in_words = true;
  return {
      .id = "bubble-4x",
      .group = Group::pipeline,
      .sources = "B",
      .claim = {"The bubble is negligible with four times as many micro-batches as stages (GPipe).",
                "微批数达到级数四倍时气泡可忽略（GPipe）。"},
      .stated = {"negligible", "可忽略"},
      .figures = {{negligible, 100 * share}},
      .unit = "%",
      .shown = {cost::percent(share), cost::percent(share)},
      .decided = {},
      .why =
          {"With p = 16 and m = 64 a fifth of the time is lost; below 5 % would have counted as negligible.",
           "p = 16、m = 64 时仍损失约五分之一；低于 5 % 才算可忽略。"},
      .formula = same("(p - 1) / (4 p + p - 1)"),
      .inputs = {"p = 16, m = 64", "p = 16，m = 64"},
      .command = simulating(nearly_equal_chunks("gpipe", 1, 4 * stages)) + "   # \"pipeline bubble\""};
}

Fact bubble_ten() {
  const double share = walk(ScheduleKind::interleaved, 8, stages).idle_share();
  return {
      .id = "bubble-10",
      .group = Group::pipeline,
      .sources = "A",
      .claim = {"The bubble was held under 10 %.", "气泡控制在 10 % 以下。"},
      .stated = {"< 10 %", "< 10 %"},
      .figures = {{below(10), 100 * share}},
      .unit = "%",
      .shown = {cost::percent(share), cost::percent(share)},
      .decided = {},
      .why =
          {"16 stages, 16 micro-batches, eight chunks of one layer each: as little as this layout can idle.",
           "16 级、16 个微批、每级 8 块各一层：这一布局最少也要空闲这么多。"},
      .formula = {"(p - 1) / (V m + p - 1), walked in the interleaved schedule",
                  "(p - 1) / (V m + p - 1)，按交错调度逐步走出"},
      .inputs = {"p = 16, m = 16, V = 8", "p = 16，m = 16，V = 8"},
      .command = simulating(nearly_equal_chunks("interleaved", 8, stages)) + "   # \"pipeline bubble\""};
}

Fact interleaved() {
  const double computed = walk(ScheduleKind::interleaved, 8, stages).idle_over_busy();
  const double stated = (stages - 1.0) / (8.0 * stages);
  const double longer = walk(ScheduleKind::interleaved, 8, 4 * stages).idle_over_busy();
  const double simulated = simulated_idle_share("interleaved", 8, stages);
  return {.id = "interleave",
          .group = Group::pipeline,
          .sources = "PB",
          .claim = {"Interleaving leaves a bubble of (p - 1) / (V m) over compute.",
                    "交错调度的气泡与计算之比为 (p - 1) / (V m)。"},
          .stated = {fmt::format("{:.4f}", stated), fmt::format("{:.4f}", stated)},
          .figures = {{digits(stated, 1e-6), computed}},
          .unit = "",
          .shown = {fmt::format("{:.4f}", computed), fmt::format("{:.4f}", computed)},
          .decided = {},
          .why = {fmt::format(
                      "From the schedule, m a multiple of p; at m = 64 it is {:.4f}. Simulated with nearly "
                      "equal chunks: {:.4f}.",
                      longer, simulated / (1 - simulated)),
                  fmt::format("由调度表得出，m 为 p 的倍数；m = 64 时为 {:.4f}。各块近乎相等的模拟：{:.4f}。",
                              longer, simulated / (1 - simulated))},
          .formula = same("(p - 1) / (V m)"),
          .inputs = {"p = 16, m = 16, V = 8", "p = 16，m = 16，V = 8"},
          .command = simulating(nearly_equal_chunks("interleaved", 8, stages)) +
                     "   # \"pipeline bubble\" b: b / (1 - b)"};
}

}  // namespace

std::vector<Fact> pipeline_rows(const Basis&) {
  return {tp_all_reduces(), bubble(), bubble_four_times(), bubble_ten(), interleaved()};
}

}  // namespace lockstep::facts
