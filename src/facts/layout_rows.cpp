#include <fmt/format.h>

#include "base/units.hpp"
#include "facts/rows.hpp"

namespace lockstep::facts {

namespace {

const std::string plan_command = "lockstep plan " + run_405b_file;

Fact step_tokens(const Basis& basis) {
  const double replica = basis.step_tokens() / static_cast<double>(basis.run().parallel.dp);
  return {.id = "step-tokens",
          .group = Group::layout,
          .sources = "B",
          .claim = {"A step takes 16.78 million tokens.", "每步 1678 万个词元。"},
          .stated = {"16.78M", "1678 万"},
          .figures = {{digits(16.78e6, 0.01e6), basis.step_tokens()}},
          .unit = "tokens",
          .shown = {format_thousands(static_cast<int64_t>(basis.step_tokens())),
                    format_thousands(static_cast<int64_t>(basis.step_tokens()))},
          .decided = {},
          .why = {fmt::format("128 replicas x 16 micro-batches x 8,192 tokens; {} a replica.",
                              format_thousands(static_cast<int64_t>(replica))),
                  fmt::format("128 个副本 x 16 个微批 x 8192 个词元；每个副本 {}。",
                              format_thousands(static_cast<int64_t>(replica)))},
          .formula = {"DP x micro-batches x sequence", "DP x 微批数 x 序列长度"},
          .inputs = same(fmt::format("{} x {} x {}", basis.run().parallel.dp, basis.run().micro_batches(),
                                     basis.run().train.sequence)),
          .command = plan_command + " --json   # step.tokens"};
}

// The same source says 6 s a step and 64 MB of token ids.
Fact step_tokens_of_the_article(const Basis& basis) {
  const double stated_tokens = 16384 * 8192.0;
  const double seconds = dense_flops(named_parameters, stated_tokens) / (basis.gpus() * sustained_flops);
  const double ids_megabytes = 4 * basis.step_tokens() / 1e6;
  const bool consistent = about(6).agrees(seconds);
  const auto sequences = static_cast<double>(basis.run().train.global_batch);
  return {.id = "step-tokens-a",
          .group = Group::layout,
          .sources = "A",
          .claim = {"A step takes 16K sequences of 8K tokens, 134 million tokens.",
                    "每步 16K 条 8K 的序列，共 1.34 亿个词元。"},
          .stated = {"16K, 134M tokens", "16K，1.34 亿"},
          .figures = {{digits(16384, 500), sequences}},
          .unit = "sequences",
          .shown = {format_thousands(static_cast<int64_t>(sequences)),
                    format_thousands(static_cast<int64_t>(sequences))},
          .decided = consistent ? Verdict::off : Verdict::inconsistent,
          .why = {fmt::format("134M tokens take {:.1f} s at 400 TFLOP/s a GPU, not its 6; its 64 MB of token "
                              "ids fits only 16.78M (4 bytes each: {:.0f} MB).",
                              seconds, ids_megabytes),
                  fmt::format("1.34 亿个词元按每卡 400 TFLOP/s 要 {:.1f} s，而非文中的 6 s；文中 64 MB "
                              "的词元编号也只够 1678 万个（各 4 字节，{:.0f} MB）。",
                              seconds, ids_megabytes)},
          .formula = {"16,777,216 tokens / 8,192; 6 N T / (GPUs x 400e12) for T = 134M",
                      "16777216 个词元 / 8192；6 N T / (GPU 数 x 400e12)，T = 1.34 亿"},
          .inputs = {"N = 405e9; T = 16,384 x 8,192", "N = 405e9；T = 16384 x 8192"},
          .command = plan_command + " --set train.global_batch=16384"};
}

Fact layout(const char* id, const char* sources, const std::vector<std::string>& overrides, Words claim,
            Words stated, Words why) {
  const config::ParallelConfig& p = run_405b(overrides).parallel;
  const auto gpus = static_cast<double>(p.tp * p.cp * p.pp * p.dp);
  std::string command = plan_command;
  for (const std::string& one : overrides) command += " --set " + one;
  return {.id = id,
          .group = Group::layout,
          .sources = sources,
          .claim = std::move(claim),
          .stated = std::move(stated),
          .figures = {{digits(16384, 0.5), gpus}},
          .unit = "GPUs",
          .shown = {format_thousands(p.world_size()), format_thousands(p.world_size())},
          .decided = {},
          .why = std::move(why),
          .formula = same("TP x CP x PP x DP"),
          .inputs = same(fmt::format("{} x {} x {} x {}", p.tp, p.cp, p.pp, p.dp)),
          .command = command + " --json   # layout.world_size"};
}

Fact layout_long_context() {
  const int64_t fewer_gpus = 8 * 16 * 16 * 4, micro_batches = 16, sequence = 131072;
  const double tokens = static_cast<double>(4 * micro_batches * sequence);
  return layout("layout-128k", "B",
                {"parallel.cp=16", "parallel.dp=8", "train.sequence=131072", "train.global_batch=128"},
                {"With 128K tokens a sequence it is TP8 x CP16 x PP16 x DP8.",
                 "128K 序列时为 TP8 x CP16 x PP16 x DP8。"},
                {"16,384", "16384"},
                {fmt::format("Some copies of P print DP4, which gives {} GPUs and {} tokens a step, not 16M.",
                             format_thousands(fewer_gpus), format_count(tokens)),
                 fmt::format("有的 P 版本印作 DP4，那只有 {} 块 GPU、每步 {:.0f} 万个词元，而非 1678 万。",
                             format_thousands(fewer_gpus), tokens / 1e4)});
}

Fact stages(const Basis& basis) {
  int64_t layers = 0;
  for (int stage = 0; stage < basis.layout().stages(); ++stage) {
    for (int chunk = 0; chunk < basis.layout().virtual_stages(); ++chunk) {
      layers += basis.layout().chunk(stage, chunk).layers;
    }
  }
  return {
      .id = "stages",
      .group = Group::layout,
      .sources = "B",
      .claim = {"126 layers lie on 16 stages, the first and the last with one fewer.",
                "126 层分到 16 级，首末两级各少一层。"},
      .stated = {"126", "126"},
      .figures = {{digits(126, 0.5), static_cast<double>(layers)}},
      .unit = "layers",
      .shown = {std::to_string(layers), std::to_string(layers)},
      .decided = {},
      .why = {"16 stages x 8 chunks of one layer, less the first chunk's and the last one's: 128 - 2.",
              "16 级 x 8 块、每块一层，首块末块各减一层：128 - 2。"},
      .formula = {"PP x V - 2, summed over the chunks of the layout", "PP x V - 2，对布局的各块求和"},
      .inputs = {fmt::format("PP = {}, V = {}", basis.layout().stages(), basis.layout().virtual_stages()),
                 fmt::format("PP = {}，V = {}", basis.layout().stages(), basis.layout().virtual_stages())},
      .command = plan_command + " --json   # memory.stages"};
}

Fact replica_racks(const Basis& basis) {
  const config::RunFile& run = basis.run();
  const int64_t gpus = run.parallel.tp * run.parallel.cp * run.parallel.pp;
  const double racks = static_cast<double>(gpus) / static_cast<double>(run.cluster.gpus_per_rack);
  const int64_t servers = gpus / run.cluster.gpus_per_node;
  return {
      .id = "replica-racks",
      .group = Group::layout,
      .sources = "A",
      .claim = {"The pipeline of one replica stretches over 16 racks.", "一个副本的流水线横跨 16 个机架。"},
      .stated = {"16 racks", "16 个机架"},
      .figures = {{digits(16, 0.5), racks}},
      .unit = "racks",
      .shown = {fmt::format("{:.0f} racks", racks), fmt::format("{:.0f} 个机架", racks)},
      .decided = {},
      .why = {fmt::format("16 stages of 8 GPUs are {} servers, and two servers stand in a rack (B).",
                          servers),
              fmt::format("16 级、每级 8 块 GPU 是 {} 台服务器，而每个机架放两台（B）。", servers)},
      .formula = {"TP x CP x PP / GPUs a rack", "TP x CP x PP / 每机柜 GPU 数"},
      .inputs = same(fmt::format("{} / {}", gpus, run.cluster.gpus_per_rack)),
      .command = plan_command + " --set cluster.gpus_per_rack=8   # were it a server a rack"};
}

}  // namespace

std::vector<Fact> layout_rows(const Basis& basis) {
  return {step_tokens(basis),
          step_tokens_of_the_article(basis),
          layout("layout-8k", "PAB", {},
                 {"With 8K tokens a sequence it is TP8 x CP1 x PP16 x DP128.",
                  "8K 序列时为 TP8 x CP1 x PP16 x DP128。"},
                 {"16,384", "16384"},
                 {"The product of the four axes; there is no fifth, as the model has no experts.",
                  "四个维度之积；模型没有专家，故无第五维。"}),
          layout_long_context(),
          stages(basis),
          replica_racks(basis)};
}

}  // namespace lockstep::facts
