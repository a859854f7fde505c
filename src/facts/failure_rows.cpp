#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>

#include "cost/text.hpp"
#include "facts/rows.hpp"
#include "plan/memory.hpp"

namespace lockstep::facts {

namespace {

enum class Kind : uint8_t { gpu, hardware, other };  // gpu: hardware too
struct Cause {
  std::string_view name;
  int count;
  Kind kind;
};
// Unexpected interruptions: P, table 5.
constexpr std::array<Cause, 18> causes = {{{"faulty GPU", 148, Kind::gpu},
                                           {"HBM3", 72, Kind::gpu},
                                           {"software bug", 54, Kind::other},
                                           {"network switch or cable", 35, Kind::hardware},
                                           {"host maintenance", 32, Kind::other},
                                           {"GPU SRAM", 19, Kind::gpu},
                                           {"GPU system processor", 17, Kind::gpu},
                                           {"NIC", 7, Kind::hardware},
                                           {"NCCL watchdog", 7, Kind::other},
                                           {"silent data corruption", 6, Kind::gpu},
                                           {"GPU thermal interface or sensor", 6, Kind::gpu},
                                           {"SSD", 3, Kind::hardware},
                                           {"power supply", 3, Kind::hardware},
                                           {"chassis", 2, Kind::hardware},
                                           {"IO board", 2, Kind::hardware},
                                           {"dependency", 2, Kind::other},
                                           {"CPU", 2, Kind::hardware},
                                           {"system memory", 2, Kind::hardware}}};
constexpr int planned = 47;

int count_if(bool (*takes)(Kind)) {
  int sum = 0;
  for (const Cause& cause : causes) sum += takes(cause.kind) ? cause.count : 0;
  return sum;
}
int unexpected() {
  return count_if([](Kind) { return true; });
}
int of_hardware() {
  return count_if([](Kind kind) { return kind != Kind::other; });
}
int of_gpus() {
  return count_if([](Kind kind) { return kind == Kind::gpu; });
}
double hours_between(int interruptions) { return run_days * 24 / interruptions; }

const std::string by_hand = "lockstep facts --json   # from P's table of causes; ";

Fact interruptions() {
  const int all = planned + unexpected();
  return {.id = "interruptions",
          .group = Group::failures,
          .sources = "PAB",
          .claim = {"54 days saw 466 interruptions, 47 planned and 419 unexpected.",
                    "54 天内 466 次中断，47 次计划内，419 次意外。"},
          .stated = {"466", "466"},
          .figures = {{digits(466, 0.5), static_cast<double>(all)}},
          .unit = "",
          .shown = {std::to_string(all), std::to_string(all)},
          .decided = {},
          .why = {fmt::format("{} planned and {} in the table of causes.", planned, unexpected()),
                  fmt::format("计划内 {} 次，加原因表中的 {} 次。", planned, unexpected())},
          .formula = {"planned + unexpected", "计划内 + 意外"},
          .inputs = {"47; P, table 5", "47；P，表 5"},
          .command = by_hand + "sum"};
}

Fact per_day() {
  const double computed = (planned + unexpected()) / run_days;
  return {.id = "per-day",
          .group = Group::failures,
          .sources = "A",
          .claim = {"Nearly nine interruptions a day.", "每天近九次中断。"},
          .stated = {"nearly 9", "近 9"},
          .figures = {{about(9), computed}},
          .unit = "a day",
          .shown = {fmt::format("{:.1f}", computed), fmt::format("{:.1f}", computed)},
          .decided = {},
          .why = {fmt::format("466 over 54 days; {:.1f} unexpected ones.", unexpected() / run_days),
                  fmt::format("466 次除以 54 天；意外的为 {:.1f} 次。", unexpected() / run_days)},
          .formula = {"interruptions / days", "中断次数 / 天数"},
          .inputs = {"466; 54", "466；54"},
          .command = by_hand + "466 / 54"};
}

Fact cause_sum() {
  return {.id = "causes",
          .group = Group::failures,
          .sources = "PB",
          .claim = {"The causes add up to 419 unexpected interruptions.", "各种原因合计 419 次意外中断。"},
          .stated = {"419", "419"},
          .figures = {{digits(419, 0.5), static_cast<double>(unexpected())}},
          .unit = "",
          .shown = {std::to_string(unexpected()), std::to_string(unexpected())},
          .decided = {},
          .why = {fmt::format("Sum of the {} rows of P's table 5.", causes.size()),
                  fmt::format("P 表 5 的 {} 行之和。", causes.size())},
          .formula = {"sum of counts", "各次数之和"},
          .inputs = {"P, table 5", "P，表 5"},
          .command = by_hand + "sum"};
}

Fact hardware_share() {
  const double share = 100.0 * of_hardware() / unexpected();
  return {.id = "hw-share",
          .group = Group::failures,
          .sources = "PB",
          .claim = {"Hardware caused about 78 % of the unexpected ones.", "意外中断约 78 % 源于硬件。"},
          .stated = {"about 78 %", "约 78 %"},
          .figures = {{about(78), share}},
          .unit = "%",
          .shown = {fmt::format("{:.1f} %", share), fmt::format("{:.1f} %", share)},
          .decided = {},
          .why = {fmt::format(
                      "{} of 419: without software 54, host maintenance 32, NCCL watchdog 7, dependency 2.",
                      of_hardware()),
                  fmt::format("419 次中的 {} 次：除去软件 54、主机维护 32、NCCL 看门狗 7、外部依赖 2。",
                              of_hardware())},
          .formula = {"hardware / unexpected", "硬件 / 意外"},
          .inputs = {"P, table 5", "P，表 5"},
          .command = by_hand + "324 / 419"};
}

Fact gpu_share() {
  const double share = 100.0 * of_gpus() / unexpected();
  return {
      .id = "gpu-share",
      .group = Group::failures,
      .sources = "PA",
      .claim = {"GPU trouble is 58.7 % of the unexpected ones.", "意外中断中 GPU 问题占 58.7 %。"},
      .stated = {"58.7 %", "58.7 %"},
      .figures = {{digits(58.7, 0.1), share}},
      .unit = "%",
      .shown = {fmt::format("{:.1f} %", share), fmt::format("{:.1f} %", share)},
      .decided = {},
      .why = {fmt::format("148+72+19+17+6+6 = {} of 419. P prints 30.1 % for the 148, which are {:.1f} %.",
                          of_gpus(), 100.0 * causes[0].count / unexpected()),
              fmt::format("148+72+19+17+6+6 = {}，共 419。P 把 148 次印作 30.1 %，实为 {:.1f} %。", of_gpus(),
                          100.0 * causes[0].count / unexpected())},
      .formula = {"GPU causes / unexpected", "GPU 原因 / 意外"},
      .inputs = {"P, table 5", "P，表 5"},
      .command = by_hand + "268 / 419"};
}

Fact gpu_count() {
  const int software = causes[2].count;
  const int mistaken = causes[0].count + causes[1].count + software;
  return {
      .id = "gpu-count-a",
      .group = Group::failures,
      .sources = "A",
      .claim = {"274 of the 466 interruptions were GPU faults.", "466 次中断中 274 次是 GPU 故障。"},
      .stated = {"274 of 466", "466 中 274"},
      .figures = {{digits(274, 0.5), static_cast<double>(of_gpus())}},
      .unit = "",
      .shown = {std::to_string(of_gpus()), std::to_string(of_gpus())},
      .decided = {},
      .why = {fmt::format("{} = 148 + 72 + 54 counts software bugs as GPU faults; P's shares are of 419, not "
                          "of 466.",
                          mistaken),
              fmt::format("{} = 148 + 72 + 54，把软件缺陷算成了 GPU 故障；P 的占比以 419 而非 466 为底。",
                          mistaken)},
      .formula = {"sum of GPU causes", "GPU 各原因之和"},
      .inputs = {"P, table 5", "P，表 5"},
      .command = by_hand + "148 + 72 + 19 + 17 + 6 + 6"};
}

Fact mtbf() {
  const double hardware = hours_between(of_hardware());
  return {
      .id = "mtbf",
      .group = Group::failures,
      .sources = "A",
      .claim = {"Hardware fails every 2.78 hours.", "硬件平均无故障时间 2.78 小时。"},
      .stated = {"2.78 h", "2.78 h"},
      .figures = {{digits(2.78, 0.01), hardware}},
      .unit = "h",
      .shown = {fmt::format("{:.2f} h", hardware), fmt::format("{:.2f} h", hardware)},
      .decided = {},
      .why = {fmt::format(
                  "{:.2f} h is 54 days over all 466, planned ones too; over unexpected ones it is {:.2f}, "
                  "over hardware ones {:.2f}.",
                  hours_between(planned + unexpected()), hours_between(unexpected()), hardware),
              fmt::format(
                  "{:.2f} h 是 54 天除以全部 466 次，含计划内的；只算意外为 {:.2f}，只算硬件为 {:.2f}。",
                  hours_between(planned + unexpected()), hours_between(unexpected()), hardware)},
      .formula = {"54 x 24 / interruptions of hardware", "54 x 24 / 硬件中断次数"},
      .inputs = same(fmt::format("{}", of_hardware())),
      .command = by_hand + "54 x 24 / 324"};
}

constexpr double save_minutes = 5, minutes_between = 167;  // 2.78 h

Fact young() {
  const double d = save_minutes, m = minutes_between;
  const double computed = std::sqrt(2 * d * m);
  // Daly, "A higher order estimate of the optimum checkpoint interval for restart dumps", FGCS 22(3), 2006.
  const double x = d / (2 * m);
  const double daly = computed * (1 + std::sqrt(x) / 3 + x / 9) - d;
  return {
      .id = "young",
      .group = Group::failures,
      .sources = "A",
      .claim = {"With saves of 5 minutes a checkpoint every 40.8 minutes is best.",
                "保存一次 5 分钟时，每 40.8 分钟存一次最佳。"},
      .stated = {"40.8 min", "40.8 分钟"},
      .figures = {{digits(40.8, 0.1), computed}},
      .unit = "min",
      .shown = {fmt::format("{:.1f} min", computed), fmt::format("{:.1f} 分钟", computed)},
      .decided = {},
      .why = {fmt::format("sqrt(2 x 5 x 167), Young's first order; Daly's higher order gives {:.1f}.", daly),
              fmt::format("sqrt(2 x 5 x 167)，Young 一阶式；Daly 高阶式给出 {:.1f}。", daly)},
      .formula = same("sqrt(2 d M)"),
      .inputs = {"d = 5 min, M = 167 min (2.78 h)", "d = 5 分钟，M = 167 分钟（2.78 h）"},
      .command = by_hand + "sqrt(2 x 5 x 167)"};
}

Fact save_cost(const Basis& basis) {
  const double lost = std::sqrt(2 * save_minutes / minutes_between);
  Stated both = below(10);
  both.in_words = true;
  const double state = plan::training_state(named_parameters, basis.run().train).published;
  return {
      .id = "save-cost",
      .group = Group::failures,
      .sources = "A",
      .claim = {"Saves take 5 minutes, and over 90 % of the time is effective training.",
                "保存一次要 5 分钟，有效训练时间却超过 90 %。"},
      .stated = {"both", "两者皆真"},
      .figures = {{both, 100 * lost}},
      .unit = "%",
      .shown = {fmt::format("{:.0f} % lost", 100 * lost), fmt::format("损失 {:.0f} %", 100 * lost)},
      .decided = both.agrees(100 * lost) ? Verdict::holds : Verdict::inconsistent,
      .why = {fmt::format(
                  "Blocking saves of 5 minutes at the best interval cost sqrt(2 x 5 / 167) = {:.1f} %; 6.48 "
                  "TB at 2 TB/s take {:.1f} s.",
                  100 * lost, state / 2e12),
              fmt::format("最佳间隔下阻塞式 5 分钟保存要耗 sqrt(2 x 5 / 167) = {:.1f} %；6.48 TB 按 2 TB/s "
                          "只需 {:.1f} s。",
                          100 * lost, state / 2e12)},
      .formula = {"sqrt(2 d / M): saves and lost work together; state / storage",
                  "sqrt(2 d / M)：保存与丢失的工作合计；状态 / 存储带宽"},
      .inputs = {"d = 5 min, M = 167 min; 6.48 TB, 2 TB/s (P)",
                 "d = 5 分钟，M = 167 分钟；6.48 TB，2 TB/s（P）"},
      .command = by_hand + "sqrt(2 x 5 / 167)"};
}

Fact save_ten() {
  const double share = 100 * save_minutes / (10 + save_minutes);
  return {.id = "save-10",
          .group = Group::failures,
          .sources = "A",
          .claim = {"A save every 10 minutes costs more time than it trains.",
                    "每 10 分钟存一次，存的时间比训练还多。"},
          .stated = {"over 50 %", "超过 50 %"},
          .figures = {{over(50), share}},
          .unit = "%",
          .shown = {fmt::format("{:.0f} %", share), fmt::format("{:.0f} %", share)},
          .decided = {},
          .why = {"5 of every 15 minutes.", "每 15 分钟中的 5 分钟。"},
          .formula = same("d / (10 + d)"),
          .inputs = {"d = 5 min", "d = 5 分钟"},
          .command = by_hand + "5 / 15"};
}

}  // namespace

std::vector<Fact> failure_rows(const Basis& basis) {
  return {interruptions(), per_day(), cause_sum(), hardware_share(), gpu_share(),
          gpu_count(),     mtbf(),    young(),     save_cost(basis), save_ten()};
}

}  // namespace lockstep::facts
