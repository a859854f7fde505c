#include <fmt/format.h>

#include <algorithm>

#include "base/units.hpp"
#include "facts/rows.hpp"
#include "plan/traffic.hpp"

namespace lockstep::facts {

namespace {

// What a source measured or announced.
Fact published(const char* id, const char* sources, Words claim, Words stated, Words why, Words inputs,
               std::string command) {
  return {.id = id,
          .group = Group::elsewhere,
          .sources = sources,
          .claim = std::move(claim),
          .stated = std::move(stated),
          .figures = {},
          .unit = "",
          .shown = {},
          .decided = Verdict::published,
          .why = std::move(why),
          .formula = {"none: it cannot be derived", "无：不能推导"},
          .inputs = std::move(inputs),
          .command = std::move(command)};
}

Fact oversubscription(const Basis& basis) {
  const config::ClusterConfig& c = basis.run().cluster;
  const double above = static_cast<double>(c.gpus_per_pod) * c.nic_bandwidth / c.pod_oversubscription / 1e12;
  return published(
      "oversub", "PB",
      {"Above a pod there is a seventh of the bandwidth below it.", "pod 之上的带宽只有其下的七分之一。"},
      {"1:7", "1:7"},
      {fmt::format("As designed (P, section 3.3.1); the preset has it: 3,072 x 50 GB/s / 7 = {:.1f} TB/s.",
                   above),
       fmt::format("设计如此（P，3.3.1 节）；预设照此：3072 x 50 GB/s / 7 = {:.1f} TB/s。", above)},
      same("cluster.pod_oversubscription = 7"),
      "lockstep simulate " + run_405b_file + " --set cluster.pod_oversubscription=1");
}

Fact price(const Basis& basis) {
  const double each = cluster_usd_an_hour / basis.gpus();
  const double preset = basis.run().cluster.usd_per_gpu_hour;
  return published(
      "price", "A", {"The cluster costs $49,000 an hour.", "集群每小时 49000 美元。"},
      {"$49,000/h", "49000 美元/时"},
      {fmt::format("Announced by A; ${:.2f} a GPU-hour. The preset has {:.2f}, an assumption.", each, preset),
       fmt::format("A 所报；合每 GPU 小时 {:.2f} 美元。预设假设为 {:.2f}。", each, preset)},
      {"16,384 GPUs", "16384 块 GPU"},
      "lockstep plan " + run_405b_file + "   # cost at cluster.usd_per_gpu_hour");
}

Fact effective() {
  const double minutes = 0.1 * run_days * 24 * 60 / 466;
  return published(
      "effective", "PB", {"Over 90 % of the time was effective training.", "超过 90 % 的时间为有效训练。"},
      {"over 90 %", "超过 90 %"},
      {fmt::format("Measured (P, section 3.3.4). A tenth of 54 days over 466 interruptions is {:.1f} min for "
                   "each, saves, lost steps and restart included.",
                   minutes),
       fmt::format(
           "实测（P，3.3.4 节）。54 天的十分之一摊到 466 次中断，每次 {:.1f} 分钟，含保存、丢失的步与重启。",
           minutes)},
      {"54 days, 466 interruptions", "54 天，466 次中断"}, "lockstep facts --explain save-cost");
}

Fact manual() {
  Fact fact = published(
      "manual", "PB", {"Three interruptions needed a person.", "只有三次中断需要人工处理。"}, {"3", "3"},
      {"Counted by P, section 3.3.4.", "P 3.3.4 节的统计。"}, same("P"), "lockstep facts --explain manual");
  fact.figures = {{digits(3, 0.5), 3}};  // as P has it
  fact.shown = {"3", "3"};
  return fact;
}

Fact diloco(const Basis& basis) {
  // Of a GPU of the second stage, in 500 steps: an exchange after each, or one.
  constexpr int steps = 500;
  const auto bytes = static_cast<double>(plan::traffic_of(basis.layout(), basis.programs().at(1)).dp);
  const std::string each = format_bytes(bytes), then = format_bytes(bytes / steps);
  return {
      .id = "diloco",
      .group = Group::elsewhere,
      .sources = "A",
      .claim = {"With one exchange in 500 steps DiLoCo sends 500 times less.",
                "DiLoCo 每 500 步交换一次，通信量减少 500 倍。"},
      .stated = {"500x less", "少 500 倍"},
      .figures = {{digits(500, 1), steps}},
      .unit = "x",
      .shown = {fmt::format("{}x", steps), fmt::format("{} 倍", steps)},
      .decided = {},
      .why = {fmt::format("One exchange in place of 500, of the same tensors and type: {} a GPU and step "
                          "become {} on average. What it does to the loss is another matter.",
                          each, then),
              fmt::format(
                  "以一次交换代替 500 次，张量与类型不变：每卡每步 {} 平均降为 {}。对损失的影响另当别论。",
                  each, then)},
      .formula = {"H, by the claim's own definition", "H，依说法自身的定义"},
      .inputs = same("H = 500"),
      .command = "lockstep plan " + run_405b_file + " --json   # traffic.dp_bytes, of every step",
      .way = Way::stated};
}

Fact megascale() {
  return published(
      "megascale", "A",
      {"A 175B model reached 55.2 % MFU on 12,288 GPUs.", "175B 模型在 12288 块 GPU 上达到 55.2 % MFU。"},
      {"55.2 %", "55.2 %"},
      {"Measured: MegaScale, NSDI 2024; Megatron-LM had 41.2 % there.",
       "实测：MegaScale，NSDI 2024；同条件下 Megatron-LM 为 41.2 %。"},
      same("MegaScale, NSDI 2024"), "lockstep facts --explain megascale");
}

}  // namespace

std::vector<Fact> published_rows(const Basis& basis) {
  return {oversubscription(basis), price(basis), effective(), manual(), diloco(basis), megascale()};
}

Fact pass_rate_row(const std::vector<Fact>& others) {
  const auto of_article = [](const Fact& fact) { return fact.sources.find('A') != std::string::npos; };
  const auto all = std::count_if(others.begin(), others.end(), of_article);
  const auto held = std::count_if(others.begin(), others.end(), [&](const Fact& fact) {
    return of_article(fact) && fact.verdict() == Verdict::holds;
  });
  const double ticked = 100.0 * 9 / 9;  // of the matrix' rows
  return {.id = "pass-rate",
          .group = Group::elsewhere,
          .sources = "A",
          .claim = {"The article's own fact check passes 96.5 %.", "文章自己的事实核对通过率为 96.5 %。"},
          .stated = {"96.5 %", "96.5 %"},
          .figures = {},
          .unit = "",
          .shown = {},
          .decided = digits(96.5, 0.1).agrees(ticked) ? Verdict::holds : Verdict::inconsistent,
          .why = {fmt::format(
                      "Its matrix ticks nine of nine rows, which is 100 %. Of its {} claims here {} hold.",
                      all, held),
                  fmt::format("核对表九行全部打勾，应为 100 %。这里列出的 {} 条中成立 {} 条。", all, held)},
          .formula = {"ticked / rows; claims of A here that hold", "打勾 / 行数；此处 A 的说法中成立者"},
          .inputs = {"9 of 9", "9 行中 9 行"},
          .command = "lockstep facts",
          .way = Way::stated};
}

std::vector<Fact> compute_facts() {
  const Basis basis;
  std::vector<Fact> facts;
  for (const auto rows : {model_rows, layout_rows, network_rows, pipeline_rows, step_rows, failure_rows,
                          power_rows, published_rows}) {
    for (Fact& fact : rows(basis)) facts.push_back(std::move(fact));
  }
  facts.push_back(pass_rate_row(facts));
  return facts;
}

}  // namespace lockstep::facts
