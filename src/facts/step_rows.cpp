#include <fmt/format.h>

#include <algorithm>

#include "base/units.hpp"
#include "cost/text.hpp"
#include "facts/rows.hpp"
#include "model/parameters.hpp"
#include "plan/memory.hpp"
#include "plan/report.hpp"

namespace lockstep::facts {

namespace {

const std::string simulate_command = "lockstep simulate " + run_405b_file;

Fact step_time(const Basis& basis) {
  const double cluster = basis.gpus() * sustained_flops;
  const double seconds = dense_flops(named_parameters, basis.step_tokens()) / cluster;
  const double causal = model::flops_per_token(basis.run().model, basis.run().train.sequence, true) *
                        basis.step_tokens() / cluster;
  return {
      .id = "step-time",
      .group = Group::step,
      .sources = "A",
      .claim = {"A step takes about 6 s.", "一步约 6 s。"},
      .stated = {"about 6 s", "约 6 s"},
      .figures = {{about(6), seconds}},
      .unit = "s",
      .shown = {fmt::format("{:.2f} s", seconds), fmt::format("{:.2f} s", seconds)},
      .decided = {},
      .why = {fmt::format("At 400 TFLOP/s a GPU; {:.2f} s with causal attention counted; the simulator, with "
                          "its own kernels and network, takes {:.2f} s.",
                          causal, basis.step().seconds),
              fmt::format(
                  "按每卡 400 TFLOP/s；计入因果注意力为 {:.2f} s；模拟器用自己的内核与网络模型得 {:.2f} s。",
                  causal, basis.step().seconds)},
      .formula = {"6 N T / (GPUs x 400e12)", "6 N T / (GPU 数 x 400e12)"},
      .inputs = {fmt::format("N = 405e9, rounded as the source does; T = {:.0f}; {:.0f} GPUs",
                             basis.step_tokens(), basis.gpus()),
                 fmt::format("N = 405e9，照来源取整；T = {:.0f}；{:.0f} 块 GPU", basis.step_tokens(),
                             basis.gpus())},
      .command = simulate_command};
}

Fact zero1(const Basis& basis) {
  const double all = plan::training_state(1, basis.run().train).published;
  const double kept = 2.0 * static_cast<double>(model::element_bytes(basis.run().train.dtype));
  const auto replicas = static_cast<double>(basis.run().parallel.dp);
  const double share = (kept + (all - kept) / replicas) / all;
  return {.id = "zero1",
          .group = Group::step,
          .sources = "B",
          .claim = {"With the optimizer sharded over many replicas a GPU keeps about a quarter of the state.",
                    "优化器状态在众多副本间分片后，每块 GPU 只留约四分之一。"},
          .stated = {"about 1/4", "约 1/4"},
          .figures = {{about(0.25), share}},
          .unit = "",
          .shown = {fmt::format("{:.3f}", share), fmt::format("{:.3f}", share)},
          .decided = {},
          .why = {"Weights and gradients stay whole, 4 of 16 bytes; 12 are shared by 128 replicas.",
                  "权重与梯度保持完整，占 16 字节中的 4；其余 12 由 128 个副本分摊。"},
          .formula = same("(4 + 12 / DP) / 16"),
          .inputs = same(fmt::format("DP = {:.0f}", replicas)),
          .command = "lockstep plan " + run_405b_file +
                     " --set parallel.zero=0   # against zero = 1; of plan's 18 bytes (fp32 gradients) it is "
                     "(6 + 12 / 128) / 18 = 0.339"};
}

Fact mfu(const Basis& basis) {
  const std::vector<std::pair<double, double>> cases = {{430, 43}, {400, 41}, {380, 38}};
  std::vector<Figure> figures;
  std::string shown;
  for (const auto& [teraflops, stated] : cases) {
    const double share = teraflops * 1e12 / basis.run().cluster.peak_flops_bf16;
    figures.push_back({digits(stated, 1), 100 * share});
    shown += fmt::format("{}{:.1f}", shown.empty() ? "" : "; ", 100 * share);
  }
  return {.id = "mfu",
          .group = Group::step,
          .sources = "PAB",
          .claim = {"430, 400 and 380 TFLOP/s a GPU are 43, 41 and 38 % MFU.",
                    "每卡 430、400、380 TFLOP/s 对应 MFU 43 %、41 %、38 %。"},
          .stated = {"43; 41; 38 %", "43；41；38 %"},
          .figures = std::move(figures),
          .unit = "%",
          .shown = {shown + " %", shown + " %"},
          .decided = {},
          .why = {fmt::format("Over {:.1f} TFLOP/s. 400 is rounded: 41 % are {:.0f}.",
                              basis.run().cluster.peak_flops_bf16 / 1e12,
                              0.41 * basis.run().cluster.peak_flops_bf16 / 1e12),
                  fmt::format("除以 {:.1f} TFLOP/s。400 是取整：41 % 为 {:.0f}。",
                              basis.run().cluster.peak_flops_bf16 / 1e12,
                              0.41 * basis.run().cluster.peak_flops_bf16 / 1e12)},
          .formula = {"r / peak", "r / 峰值"},
          .inputs = {"r = 430, 400, 380 TFLOP/s; peak = cluster.peak_flops_bf16",
                     "r = 430、400、380 TFLOP/s；峰值 = cluster.peak_flops_bf16"},
          .command = simulate_command + " --json   # step.mfu, step.tflops_per_gpu"};
}

// P, table 4: 8,192 GPUs, 16,384, and 16,384 with 128K tokens a sequence.
std::vector<std::vector<std::string>> settings() {
  return {{"parallel.dp=64", "cluster.gpus=8192"},
          {},
          {"parallel.cp=16", "parallel.dp=8", "train.sequence=131072", "train.global_batch=128"}};
}

// Per cent, by `plan`'s step time with P's program. P counts 6 FLOPs a parameter and causal attention's
// 6 L H S a token (docs/accuracy.md).
double planned_mfu(std::vector<std::string> overrides) {
  overrides.insert(overrides.end(), {"software.preset=llama3", "parallel.zero=2"});
  const plan::Plan plan = plan::plan_of(run_405b(overrides));
  const config::RunFile& run = plan.run;
  const auto sequence = static_cast<double>(run.train.sequence);
  const double tokens = static_cast<double>(run.train.global_batch) * sequence;
  const double attention =
      6.0 * static_cast<double>(run.model.layers) * static_cast<double>(run.model.hidden) * sequence * tokens;
  const double flops =
      dense_flops(static_cast<double>(model::parameter_count(run.model)), tokens) + attention;
  return 100 * flops /
         (plan.step.seconds * static_cast<double>(run.parallel.world_size()) * run.cluster.peak_flops_bf16);
}

Fact mfu_range() {
  std::vector<Figure> figures;
  std::string shown;
  double least = 100, most = 0;
  for (const std::vector<std::string>& setting : settings()) {
    const double computed = planned_mfu(setting);
    figures.push_back({between(38, 43), computed});
    shown += fmt::format("{}{:.1f}", shown.empty() ? "" : "; ", computed);
    least = std::min(least, computed), most = std::max(most, computed);
  }
  constexpr double daily = 0.02;  // P: what speed varies by over a day, at most
  return {
      .id = "mfu-range",
      .group = Group::step,
      .sources = "A",
      .claim = {"MFU fluctuates between 38 and 43 %.", "MFU 在 38 % 到 43 % 之间波动。"},
      .stated = {"fluctuation", "波动"},
      .figures = std::move(figures),
      .unit = "%",
      .shown = {shown + " %", shown + " %"},
      .decided = most / least > 1 + daily ? Verdict::off : Verdict::holds,
      .why = {"By plan's step times P's three configurations alone span it: 8,192 GPUs, 16,384, and 16,384 "
              "with 128K tokens a sequence. (The H100's curve is fitted to two of these rows, "
              "beside others.) Over a day speed varies by 1 to 2 %.",
              "按 plan 的步时，仅 P 的三种配置就跨过此区间：8192 块、16384 块、16384 块且序列 "
              "128K。（H100 的曲线是用其中两行连同其他数据拟合的。）一天之内速度只变 1 % 到 2 %。"},
      .formula =
          {"(6 N + 6 L H S) T / (step x GPUs x peak), of each configuration; off where they differ by more "
           "than a day's 2 %",
           "(6 N + 6 L H S) T / (步时 x GPU 数 x 峰值)，对每种配置；相差超过一天的 2 % 即不符"},
      .inputs =
          {"P, table 4: 43 % on 8,192 GPUs, 41 % on 16,384, 38 % with 128K tokens a sequence; "
           "software.preset = llama3",
           "P，表 4：8192 块 GPU 为 43 %，16384 块为 41 %，序列 128K 为 38 %；software.preset = llama3"},
      .command = "lockstep plan " + run_405b_file +
                 " --set software.preset=llama3 --set parallel.zero=2 --set parallel.dp=64 --set "
                 "cluster.gpus=8192   # step.seconds of the first"};
}

// Whether forwards and backwards of the simulated step go on at the same time.
bool passes_overlap(const std::vector<sim::Phase>& phases) {
  const auto phase = [&](std::string_view name) {
    return std::find_if(phases.begin(), phases.end(), [&](const sim::Phase& p) { return p.name == name; });
  };
  const auto forward = phase("forward"), backward = phase("backward");
  return forward != phases.end() && backward != phases.end() && forward->end > backward->start;
}

Fact forward_backward(const Basis& basis) {
  const parallel::Layout layout(run_405b({"parallel.recompute=none"}));
  const auto flops = [](const std::vector<model::Op>& ops) {
    double sum = 0;
    for (const model::Op& op : ops) sum += op.kind == model::OpKind::gemm ? op.flops : 0;
    return sum;
  };
  const double forward = flops(layout.layers().layer_forward());
  const double backward =
      flops(layout.layers().layer_backward_input({})) + flops(layout.layers().layer_backward_weight({}));
  const double ratio = backward / forward;
  const bool overlap = passes_overlap(basis.step().phases);
  return {
      .id = "fwd-bwd",
      .group = Group::step,
      .sources = "A",
      .claim = {"Forward takes 2.1 s and backward 2.6 s of a step.", "一步中前向 2.1 s、反向 2.6 s。"},
      .stated = {"ratio 1.24", "比值 1.24"},
      .figures = {{digits(1.24, 0.01, 2.65 / 2.05 - 2.6 / 2.1), ratio}},
      .unit = "x",
      .shown = {fmt::format("about {:.3g}", ratio), fmt::format("约 {:.3g}", ratio)},
      .decided = {},
      .why = {"Backward has two matrix products for each one of forward: to the input and to the weight." +
                  std::string(overlap ? " In the simulated pipeline they also overlap in time." : ""),
              "前向每个矩阵乘，反向有两个：对输入和对权重。" +
                  std::string(overlap ? "在模拟的流水线中两者时间上还重叠。" : "")},
      .formula = {"FLOPs of backward's matrix products / forward's, in the layer program",
                  "层程序中反向矩阵乘的 FLOP 数 / 前向的"},
      .inputs = {"one layer, no recomputation", "一层，不重算"},
      .command = simulate_command + " --json   # phases"};
}

Fact optimizer(const Basis& basis) {
  double bytes = 0, elements = 0;
  for (int stage = 0; stage < basis.layout().stages(); ++stage) {
    const parallel::Program& program = basis.programs()[static_cast<size_t>(stage)];
    for (const parallel::Action& action : program.actions) {
      if (action.kind != parallel::ActionKind::optimizer_step) continue;
      elements += static_cast<double>(basis.layout().state_elements(stage, action.chunk));
      for (const model::Op& op : parallel::action_ops(basis.layout(), stage, action)) {
        bytes += static_cast<double>(op.bytes);
      }
    }
  }
  const double own = elements / basis.layout().stages();
  const double seconds = bytes / basis.layout().stages() / basis.run().cluster.memory_bandwidth;
  const std::string rate = format_quantity(basis.run().cluster.memory_bandwidth, "B/s");
  const cost::StepSplit& split = basis.step().split;
  return {.id = "optimizer",
          .group = Group::step,
          .sources = "A",
          .claim = {"The optimizer takes 0.7 s of a step.", "优化器占一步中的 0.7 s。"},
          .stated = {"0.7 s", "0.7 s"},
          .figures = {{digits(700, 100), 1e3 * seconds}},
          .unit = "ms",
          .shown = {fmt::format("{:.2f} ms", 1e3 * seconds), fmt::format("{:.2f} ms", 1e3 * seconds)},
          .decided = {},
          .why = {fmt::format("{} parameters a GPU, {:.0f} bytes each at {}. Simulated, its kernels and the "
                              "norm's take {}; gradients and parameters not hidden {}.",
                              format_count(own), bytes / elements, rate, format_seconds(split.optimizer),
                              format_seconds(split.dp)),
                  fmt::format("每卡 {} 个参数，各 {:.0f} 字节，按 {}。模拟中优化器与范数的内核用 "
                              "{}；未被掩盖的梯度与参数通信 "
                              "{}。",
                              format_count(own), bytes / elements, rate, format_seconds(split.optimizer),
                              format_seconds(split.dp))},
          .formula = {"bytes of the optimizer's kernels / cluster.memory_bandwidth, mean over stages",
                      "优化器内核的字节数 / cluster.memory_bandwidth，对各级取平均"},
          .inputs = {fmt::format("{:.4g} bytes, {:g} bytes/s", bytes / basis.layout().stages(),
                                 basis.run().cluster.memory_bandwidth),
                     fmt::format("{:.4g} 字节，{:g} 字节/秒", bytes / basis.layout().stages(),
                                 basis.run().cluster.memory_bandwidth)},
          .command = simulate_command + "   # parts optimizer and dp"};
}

}  // namespace

std::vector<Fact> step_rows(const Basis& basis) {
  return {step_time(basis), zero1(basis), mfu(basis), mfu_range(), forward_backward(basis), optimizer(basis)};
}

}  // namespace lockstep::facts
