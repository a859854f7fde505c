#include <fmt/format.h>

#include <cmath>

#include "base/units.hpp"
#include "facts/rows.hpp"
#include "model/parameters.hpp"
#include "plan/memory.hpp"

namespace lockstep::facts {

namespace {

// As claims round 3.79e25.
constexpr double stated_flops = 3.8e25;
const std::string plan_command = "lockstep plan " + run_405b_file;

// "3.79e25".
std::string scientific(double value) {
  std::string text = fmt::format("{:.3g}", value);
  std::erase(text, '+');
  return text;
}

std::string whole(double value) { return format_thousands(std::llround(value)); }

double years(double gpus) { return stated_flops / sustained_flops / gpus / seconds_a_year; }

Fact parameters(const Basis& basis) {
  const config::ModelConfig& m = basis.run().model;
  const int64_t count = model::parameter_count(m);
  return {
      .id = "params",
      .group = Group::model,
      .sources = "PAB",
      .claim = {"The model has 405 billion parameters.", "模型有 4050 亿个参数。"},
      .stated = {"405e9", "4050 亿"},
      .figures = {{digits(named_parameters, 1e9), static_cast<double>(count)}},
      .unit = "parameters",
      .shown = {format_thousands(count), format_thousands(count)},
      .decided = {},
      .why = {fmt::format("{} layers {} wide, FFN {}, {} heads of which {} hold keys and values, "
                          "vocabulary {}, output matrix not tied.",
                          m.layers, whole(m.hidden), whole(m.ffn), m.heads, m.kv_heads, whole(m.vocab)),
              fmt::format("{} 层，宽 {}，FFN {}，{} 个查询头、{} 个键值头，词表 {}，输出矩阵不与嵌入共享。",
                          m.layers, m.hidden, m.ffn, m.heads, m.kv_heads, m.vocab)},
      .formula = same("2 V H + L (2 H^2 + 2 H KV + 3 H F + 2 H) + H"),
      .inputs = {fmt::format("L = {}, H = {}, F = {}, V = {}, KV = {} x {}", m.layers, m.hidden, m.ffn,
                             m.vocab, m.kv_heads, m.head_dim()),
                 fmt::format("L = {}，H = {}，F = {}，V = {}，KV = {} x {}", m.layers, m.hidden, m.ffn,
                             m.vocab, m.kv_heads, m.head_dim())},
      .command = plan_command + " --json   # model.parameters"};
}

Fact weights(const Basis& basis) {
  const double bytes = static_cast<double>(model::element_bytes(basis.run().train.dtype)) * named_parameters;
  const double gpus = std::ceil(bytes / basis.run().cluster.memory_bytes);
  return {.id = "weights",
          .group = Group::model,
          .sources = "AB",
          .claim = {"Its weights in bf16 take 810 GB.", "bf16 权重占 810 GB。"},
          .stated = {"810 GB", "810 GB"},
          .figures = {{digits(810, 1), bytes / 1e9}},
          .unit = "GB",
          .shown = {fmt::format("{:.0f} GB", bytes / 1e9), fmt::format("{:.0f} GB", bytes / 1e9)},
          .decided = {},
          .why = {fmt::format("2 bytes x the rounded 405e9: more than ten GPUs of 80 GB, so at least {:.0f}.",
                              gpus),
                  fmt::format("2 字节 x 取整的 405e9：十块 80 GB 的 GPU 放不下，至少要 {:.0f} 块。", gpus)},
          .formula = same("2 N"),
          .inputs = {"N = 405e9, rounded as the sources do", "N = 405e9，照来源取整"},
          .command = plan_command};
}

Fact state(const Basis& basis) {
  const auto of = [&](double n) { return plan::training_state(n, basis.run().train).published / 1e12; };
  const double exact = of(static_cast<double>(model::parameter_count(basis.run().model)));
  const double bytes = of(named_parameters);
  const double gpus = std::ceil(bytes * 1e12 / basis.run().cluster.memory_bytes);
  return {
      .id = "state",
      .group = Group::model,
      .sources = "AB",
      .claim = {"Weights, gradients and optimizer together take 6.48 TB.",
                "权重、梯度与优化器状态共占 6.48 TB。"},
      .stated = {"6.48 TB", "6.48 TB"},
      .figures = {{digits(6.48, 0.01), bytes}},
      .unit = "TB",
      .shown = {fmt::format("{:.2f} TB", bytes), fmt::format("{:.2f} TB", bytes)},
      .decided = {},
      .why = {fmt::format("2 + 2 + 12 bytes x the rounded 405e9 ({:.2f} TB with the exact count): at least "
                          "{:.0f} GPUs of 80 GB.",
                          exact, gpus),
              fmt::format(
                  "每参数 2 + 2 + 12 字节 x 取整的 405e9（按精确数为 {:.2f} TB）：至少 {:.0f} 块 80 GB "
                  "的 GPU。",
                  exact, gpus)},
      .formula = {"(2 + 2 + 12) N: bf16 weights and gradients, fp32 master weights and two moments",
                  "(2 + 2 + 12) N：bf16 权重与梯度，fp32 主权重与两个动量"},
      .inputs = {"N = 405e9, rounded as the sources do", "N = 405e9，照来源取整"},
      .command = plan_command};
}

Fact flops(const Basis& basis) {
  const auto tokens = static_cast<double>(basis.run().train.tokens);
  const double computed = dense_flops(named_parameters, tokens);
  const double own = model::flops_per_token(basis.run().model, basis.run().train.sequence, true) * tokens;
  return {
      .id = "flops",
      .group = Group::model,
      .sources = "B",
      .claim = {"Training it takes 3.8e25 floating-point operations.", "训练需要 3.8e25 次浮点运算。"},
      .stated = {"3.8e25", "3.8e25"},
      .figures = {{digits(stated_flops, 0.1e25), computed}},
      .unit = "FLOP",
      .shown = {scientific(computed), scientific(computed)},
      .decided = {},
      .why = {fmt::format("6 N D with N = 405e9 and 15.6e12 tokens; {} counting the parameters that "
                          "multiply, and causal attention.",
                          scientific(own)),
              fmt::format("6 N D，N = 405e9，15.6 万亿个词元；只数参与乘法的参数并计入因果注意力则为 {}。",
                          scientific(own))},
      .formula = same("6 N D"),
      .inputs = {fmt::format("N = 405e9, rounded as the sources do; D = {:.4g}", tokens),
                 fmt::format("N = 405e9，照来源取整；D = {:.4g}", tokens)},
      .command = plan_command + " --json   # model.flops_per_token, training.tokens"};
}

Fact one_gpu(const Basis&) {
  const double computed = years(1);
  return {.id = "one-gpu",
          .group = Group::model,
          .sources = "B",
          .claim = {"One GPU at 400 TFLOP/s would need about 3,000 years.",
                    "一块 GPU 以 400 TFLOP/s 要算约 3000 年。"},
          .stated = {"about 3,000 years", "约 3000 年"},
          .figures = {{about(3000), computed}},
          .unit = "years",
          .shown = {whole(computed) + " years", whole(computed) + " 年"},
          .decided = {},
          .why = {"The stated 3.8e25 FLOP over 400 TFLOP/s, in years of 365.25 days.",
                  "所述 3.8e25 FLOP 除以 400 TFLOP/s，一年按 365.25 天。"},
          .formula = same("C / r"),
          .inputs = {"C = 3.8e25 FLOP, r = 400e12 FLOP/s", "C = 3.8e25 FLOP，r = 400e12 FLOP/s"},
          .command = plan_command + " --json   # training.gpu_hours, at the planned speed"};
}

Fact gpu_years(const Basis& basis) {
  const double computed = years(1);
  const double counted = run_days * basis.gpus() * seconds_a_day / seconds_a_year;
  return {
      .id = "gpu-years",
      .group = Group::model,
      .sources = "A",
      .claim = {"The training took about 3,000 GPU-years.", "训练用了约 3000 GPU 年。"},
      .stated = {"about 3,000", "约 3000"},
      .figures = {{about(3000), computed}},
      .unit = "GPU-years",
      .shown = {whole(computed), whole(computed)},
      .decided = {},
      .why = {fmt::format("As one-gpu; the 54 days of {} GPUs in which interruptions were counted alone are "
                          "{}.",
                          format_thousands(basis.run().parallel.world_size()), whole(counted)),
              fmt::format("同 one-gpu；仅统计中断的 54 天、{} 块 GPU 就是 {} GPU 年。",
                          format_thousands(basis.run().parallel.world_size()), whole(counted))},
      .formula = {"C / r; 54 days x GPUs", "C / r；54 天 x GPU 数"},
      .inputs = {"C = 3.8e25 FLOP, r = 400e12 FLOP/s", "C = 3.8e25 FLOP，r = 400e12 FLOP/s"},
      .command = plan_command + " --json   # training.gpu_hours, at the planned speed"};
}

Fact cluster_days(const Basis& basis) {
  const double computed = years(basis.gpus()) * seconds_a_year / seconds_a_day;
  return {
      .id = "cluster-days",
      .group = Group::model,
      .sources = "B",
      .claim = {"16,384 GPUs compute for 67 days, nothing else counted.", "16384 块 GPU 只算计算要 67 天。"},
      .stated = {"67 days", "67 天"},
      .figures = {{digits(67, 1), computed}},
      .unit = "days",
      .shown = {fmt::format("{:.1f} days", computed), fmt::format("{:.1f} 天", computed)},
      .decided = {},
      .why = {"The years of one GPU over all GPUs; no interruption, no start-up, 400 TFLOP/s throughout.",
              "单卡年数除以 GPU 数；不计中断与启动，全程 400 TFLOP/s。"},
      .formula = {"C / (r x GPUs)", "C / (r x GPU 数)"},
      .inputs = {fmt::format("C = 3.8e25 FLOP, r = 400e12 FLOP/s, {:.0f} GPUs", basis.gpus()),
                 fmt::format("C = 3.8e25 FLOP，r = 400e12 FLOP/s，{:.0f} 块 GPU", basis.gpus())},
      .command = plan_command + "   # days, at the planned speed"};
}

}  // namespace

std::vector<Fact> model_rows(const Basis& basis) {
  return {parameters(basis), weights(basis),   state(basis),       flops(basis),
          one_gpu(basis),    gpu_years(basis), cluster_days(basis)};
}

}  // namespace lockstep::facts
