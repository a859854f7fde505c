#include <fmt/format.h>

#include <algorithm>

#include "base/error.hpp"
#include "base/units.hpp"
#include "cost/power.hpp"
#include "facts/rows.hpp"

namespace lockstep::facts {

namespace {

const std::string simulate_command = "lockstep simulate " + run_405b_file;

// Steps of P's batch ramp (section 3.4.1): 4M tokens a step, 8M after 252M tokens, 16M after 2.87T.
double steps_of_run(double tokens) {
  const double first = 252e6, second = 2.87e12;
  const double small = 1024 * 4096.0, middle = 1024 * 8192.0, large = 2048 * 8192.0;
  return first / small + (second - first) / middle + (tokens - second) / large;
}

Fact delay(const Basis& basis) {
  const double usd_a_second = cluster_usd_an_hour / 3600;
  const double computed = 0.1 * 100000 * usd_a_second;
  const double steps = steps_of_run(static_cast<double>(basis.run().train.tokens));
  const double whole = 0.1 * steps * usd_a_second;
  return {
      .id = "delay",
      .group = Group::power,
      .sources = "A",
      .claim = {"0.1 s lost in each of 100,000 steps costs over $1M.",
                "10 万步每步耽误 0.1 s，损失超过 100 万美元。"},
      .stated = {"over $1M", "超过 100 万美元"},
      .figures = {{over(1e6), computed}},
      .unit = "USD",
      .shown = {"$" + format_count(computed), fmt::format("{:.3g} 万美元", computed / 1e4)},
      .decided = {},
      .why = {fmt::format(
                  "10,000 s at its $49,000/h. Over the whole run with P's batch ramp, {} steps, it would be "
                  "${}.",
                  format_count(steps), format_count(whole)),
              fmt::format("10000 s，按文中每小时 49000 美元。按 P 的批量爬升算完整次训练共 {:.0f} 万步，为 "
                          "{:.0f} 万美元。",
                          steps / 1e4, whole / 1e4)},
      .formula = {"0.1 s x steps x price", "0.1 s x 步数 x 价格"},
      .inputs = {"100,000 steps; $49,000 an hour", "100000 步；每小时 49000 美元"},
      .command = "lockstep plan " + run_405b_file + " --set cluster.step_overhead=0.1"};
}

Fact idle_minute() {
  const double computed = cluster_usd_an_hour / 60;
  const bool consistent = digits(550, 10).agrees(computed);
  return {
      .id = "idle-minute",
      .group = Group::power,
      .sources = "A",
      .claim = {"An idle cluster costs $550 a minute.", "集群闲置每分钟损失 550 美元。"},
      .stated = {"$550", "550 美元"},
      .figures = {{digits(550, 10), computed}},
      .unit = "USD a minute",
      .shown = {fmt::format("${:.0f}", computed), fmt::format("{:.0f} 美元", computed)},
      .decided = consistent ? Verdict::holds : Verdict::inconsistent,
      .why = {"$49,000 an hour in the same source, over 60; perhaps one is an owner's cost and one a rent.",
              "同一来源写每小时 49000 美元，除以 60；也许一个是自有摊销，一个是租价。"},
      .formula = {"price / 60", "价格 / 60"},
      .inputs = {"$49,000 an hour", "每小时 49000 美元"},
      .command = "lockstep facts --explain price"};
}

cost::Power power_of(const Basis& basis) {
  const std::optional<cost::Power> power = cost::power_of(basis.run(), basis.step().split);
  if (!power) throw RunError("the cluster's preset has no power figures (cluster.gpu_compute_watts)");
  return *power;
}

Fact cluster_power(const Basis& basis) {
  const cost::Power power = power_of(basis);
  const double computed = power.average() / 1e6;
  const double each = basis.run().cluster.gpu_compute_watts;
  const double gpus = basis.gpus() * each / 1e6;
  const std::string count = format_thousands(basis.run().parallel.world_size());
  return {
      .id = "power",
      .group = Group::power,
      .sources = "A",
      .claim = {"The cluster draws 16 to 20 MW.", "集群功率为 16 到 20 MW。"},
      .stated = {"16-20 MW", "16-20 MW"},
      .figures = {{between(16, 20), computed}},
      .unit = "MW",
      .shown = {fmt::format("{:.1f} MW", computed), fmt::format("{:.1f} MW", computed)},
      .decided = {},
      .why = {fmt::format("{} x {:g} W are {:.1f} MW at most for GPUs; simulated: GPUs {:.1f}, hosts {:.1f}, "
                          "network {:.1f}, cooling and losses {:.1f} MW (the preset's assumptions).",
                          count, each, gpus, power.gpus / 1e6, power.hosts / 1e6, power.network / 1e6,
                          power.overhead / 1e6),
              fmt::format(
                  "{} x {:g} W，GPU 最多 {:.1f} MW；模拟得 GPU {:.1f}、主机 {:.1f}、网络 {:.1f}、散热与损耗 "
                  "{:.1f} MW（预设中的假设）。",
                  count, each, gpus, power.gpus / 1e6, power.hosts / 1e6, power.network / 1e6,
                  power.overhead / 1e6)},
      .formula = {"PUE x (GPUs by what they do + hosts + network), mean over the simulated step",
                  "PUE x (GPU 按其所为 + 主机 + 网络)，对模拟的一步取平均"},
      .inputs = {fmt::format("{:.0f} W a GPU; {:g} W a host, {:g} W of network a GPU, PUE {:g}",
                             power.one_gpu, basis.run().cluster.host_watts_per_node,
                             basis.run().cluster.network_watts_per_gpu, basis.run().cluster.pue),
                 fmt::format("每 GPU {:.0f} W；每主机 {:g} W，每 GPU 网络 {:g} W，PUE {:g}", power.one_gpu,
                             basis.run().cluster.host_watts_per_node,
                             basis.run().cluster.network_watts_per_gpu, basis.run().cluster.pue)},
      .command = simulate_command + " --json   # power",
      .way = Way::simulated};
}

// Both must be over 10 MW: most less least of a step, and the largest change within milliseconds.
Fact swing(const Basis& basis) {
  constexpr double milliseconds = 10e-3;
  const PowerWaveform& waveform = basis.waveform();
  const config::ClusterConfig& c = basis.run().cluster;
  const double computed = waveform.swing() / 1e6;
  const double fast = waveform.largest_change(milliseconds) / 1e6;
  const double most = basis.gpus() * (c.gpu_compute_watts - c.gpu_idle_watts) / 1e6;
  const int count = basis.layout().stages();
  const double each = basis.gpus() / (4.0 * count);
  return {
      .id = "swing",
      .group = Group::power,
      .sources = "A",
      .claim = {"Every step swings by over 10 MW within milliseconds.",
                "每一步功率都在毫秒内摆动超过 10 MW。"},
      .stated = {"over 10 MW", "超过 10 MW"},
      .figures = {{over(10), computed}},
      .unit = "MW",
      .shown = {fmt::format("{:.1f} MW", computed), fmt::format("{:.1f} MW", computed)},
      .decided = computed > 10 && fast > 10 ? Verdict::holds : Verdict::off,
      .why = {fmt::format(
                  "Simulated GPUs draw {:.1f} MW at most and {:.1f} at least, as the pipeline fills and "
                  "empties; within 10 ms they change by {:.1f} at most. All of them at once could change "
                  "by {:.1f}. P's tens of MW are a site's.",
                  waveform.peak() / 1e6, waveform.valley() / 1e6, fast, most),
              fmt::format("模拟中 GPU 最多 {:.1f} MW、最少 {:.1f} MW，随流水线充满与排空而变；10 ms "
                          "内至多变化 {:.1f} MW。全部 GPU "
                          "同时启停也只有 {:.1f} MW。P 所说的数十 MW 指整个园区。",
                          waveform.peak() / 1e6, waveform.valley() / 1e6, fast, most)},
      .formula = {"most less least power of all GPUs, means over 1 ms of the simulated step",
                  "全部 GPU 功率的最大值减最小值，对模拟的一步每 1 ms 取平均"},
      .inputs = {fmt::format("spans of 4 ranks of each of {} stages, each for {:.0f} GPUs; {:g} W computing, "
                             "{:g} W communicating, {:g} W waiting; hosts, network and cooling do not follow "
                             "so fast",
                             count, each, c.gpu_compute_watts, c.gpu_communication_watts, c.gpu_idle_watts),
                 fmt::format(
                     "{} 级各 4 个 rank 的区间，每个代表 {:.0f} 块 GPU；计算 {:g} W，通信 {:g} W，等待 "
                     "{:g} W；主机、网络与散热跟不上这样的速度",
                     count, each, c.gpu_compute_watts, c.gpu_communication_watts, c.gpu_idle_watts)},
      .command = simulate_command + " --trace step.json   # the spans that it is made of",
      .way = Way::simulated};
}

Fact cooling() {
  return {.id = "cooling",
          .group = Group::power,
          .sources = "A",
          .claim = {"The cluster is cooled by liquid.", "集群采用液冷。"},
          .stated = {"liquid", "液冷"},
          .figures = {},
          .unit = "",
          .shown = {"air", "风冷"},
          .decided = Verdict::inconsistent,
          .why = {"P and B say that all of it is cooled by air.", "P 与 B 都说全部为风冷。"},
          .formula = {"none: statements compared", "无：只比较各方说法"},
          .inputs = {"A against P and B", "A 对 P 与 B"},
          .command = "lockstep facts --explain cooling",
          .way = Way::stated};
}

}  // namespace

std::vector<Fact> power_rows(const Basis& basis) {
  return {delay(basis), idle_minute(), cluster_power(basis), swing(basis), cooling()};
}

}  // namespace lockstep::facts
