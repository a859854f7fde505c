#include <fmt/format.h>

#include <cmath>
#include <numeric>

#include "base/units.hpp"
#include "collective/patterns.hpp"
#include "facts/rows.hpp"

namespace lockstep::facts {

namespace {

using collective::Collective;

const std::string plan_command = "lockstep plan " + run_405b_file;

std::string whole(double value) { return format_thousands(std::llround(value)); }

double ring_sends(int ranks) {
  return collective::sent_fraction(collective::ring(Collective::all_reduce, ranks), 0);
}

// Of the pattern form of the step list: the list itself has N^2 steps a phase.
int rounds_of(const char* algorithm, int ranks, int pieces = 1) {
  const collective::Patterns patterns =
      collective::round_patterns(Collective::all_reduce, algorithm, ranks, 1, pieces);
  return std::accumulate(patterns.rounds.begin(), patterns.rounds.end(), 0,
                         [](int sum, const collective::RoundPattern& p) { return sum + p.rounds; });
}

Fact nvlink(const Basis& basis) {
  const double computed = basis.run().cluster.nvlink_bandwidth / 1e9;
  return {.id = "nvlink",
          .group = Group::network,
          .sources = "B",
          .claim = {"NVLink carries 450 GB/s in each direction.", "NVLink 单向 450 GB/s。"},
          .stated = {"450 GB/s", "450 GB/s"},
          .figures = {{digits(450, 1), computed}},
          .unit = "GB/s",
          .shown = {fmt::format("{:.0f} GB/s", computed), fmt::format("{:.0f} GB/s", computed)},
          .decided = {},
          .why = {fmt::format("18 links of 25 GB/s are {}; 900 counts both directions.", 18 * 25),
                  fmt::format("18 条链路 x 25 GB/s = {}；900 是双向合计。", 18 * 25)},
          .formula = {"cluster.nvlink_bandwidth of the preset, from the data sheet's 900 / 2",
                      "预设的 cluster.nvlink_bandwidth，取自数据手册的 900 / 2"},
          .inputs = same("configs/presets/devices/h100-80g.toml"),
          .command = plan_command + " --set cluster.nvlink_bandwidth=900e9   # were it 900"};
}

Fact nic_ratio(const Basis& basis) {
  const config::ClusterConfig& c = basis.run().cluster;
  const double computed = c.nvlink_bandwidth / c.nic_bandwidth;
  return {.id = "nic-ratio",
          .group = Group::network,
          .sources = "B",
          .claim = {"NVLink is nine times as fast as the NIC.", "NVLink 是网卡的九倍。"},
          .stated = {"9x", "9 倍"},
          .figures = {{digits(9, 0.5), computed}},
          .unit = "x",
          .shown = {fmt::format("{:.3g}x", computed), fmt::format("{:.3g} 倍", computed)},
          .decided = {},
          .why = {"450 GB/s over 400 Gb/s, which is 50 GB/s.", "450 GB/s 比 400 Gb/s（即 50 GB/s）。"},
          .formula = same("cluster.nvlink_bandwidth / cluster.nic_bandwidth"),
          .inputs = same(fmt::format("{:g} / {:g}", c.nvlink_bandwidth, c.nic_bandwidth)),
          .command = plan_command + " --set cluster.nic_bandwidth=450e9   # were they alike"};
}

Fact pod(const Basis& basis) {
  const config::ClusterConfig& c = basis.run().cluster;
  const double in_pod = 192.0 * static_cast<double>(c.gpus_per_rack);
  const double in_all = 8 * in_pod;
  const bool as_preset =
      static_cast<double>(c.gpus_per_pod) == in_pod && static_cast<double>(c.max_gpus) == in_all;
  return {
      .id = "pod",
      .group = Group::network,
      .sources = "PB",
      .claim = {"A pod has 3,072 GPUs, the cluster 24,576.", "一个 pod 有 3072 块 GPU，整个集群 24576 块。"},
      .stated = {"3,072; 24,576", "3072；24576"},
      .figures = {{digits(3072, 0.5), in_pod}, {digits(24576, 0.5), in_all}},
      .unit = "GPUs",
      .shown = {fmt::format("{}; {}", whole(in_pod), whole(in_all)),
                fmt::format("{}；{}", whole(in_pod), whole(in_all))},
      .decided = {},
      .why = {fmt::format("192 racks x {} GPUs; x 8 pods; the preset's own figures {}.", c.gpus_per_rack,
                          as_preset ? "are the same" : "differ"),
              fmt::format("192 个机架 x {} 块；再 x 8 个 pod；预设中的数{}。", c.gpus_per_rack,
                          as_preset ? "相同" : "不同")},
      .formula = {"racks x GPUs a rack; x pods", "机柜数 x 每机柜 GPU 数；再 x pod 数"},
      .inputs = {"192 racks, 8 pods", "192 个机柜，8 个 pod"},
      .command = plan_command + " --set cluster.gpus_per_pod=3072"};
}

Fact peak(const Basis& basis) {
  const double computed = basis.run().cluster.peak_flops_bf16 / 1e12;
  return {.id = "peak",
          .group = Group::network,
          .sources = "B",
          .claim = {"The dense bf16 peak of an H100 is about 989 TFLOP/s.",
                    "H100 的 bf16 稠密峰值约 989 TFLOP/s。"},
          .stated = {"about 989", "约 989"},
          .figures = {{about(989), computed}},
          .unit = "TFLOP/s",
          .shown = {fmt::format("{:.1f}", computed), fmt::format("{:.1f}", computed)},
          .decided = {},
          .why = {fmt::format("1,979 with sparsity, halved: {:.1f}.", 1979 / 2.0),
                  fmt::format("带稀疏为 1979，减半得 {:.1f}。", 1979 / 2.0)},
          .formula = same("cluster.peak_flops_bf16"),
          .inputs = same("configs/presets/devices/h100-80g.toml"),
          .command = plan_command + " --set cluster.peak_flops_bf16=1979e12   # were it twice as much"};
}

Fact ring_bytes(const Basis&) {
  const double eight = ring_sends(8), many = ring_sends(128);
  return {.id = "ring-bytes",
          .group = Group::network,
          .sources = "B",
          .claim = {"In a ring all-reduce a rank sends 1.75 times the buffer among 8, 1.98 times among 128.",
                    "环形 all-reduce 中，8 个进程时每个发送 1.75 倍缓冲区，128 个时 1.98 倍。"},
          .stated = {"1.75x; 1.98x", "1.75 倍；1.98 倍"},
          .figures = {{digits(1.75, 0.01), eight}, {digits(1.98, 0.01), many}},
          .unit = "x",
          .shown = {fmt::format("{:.2f}x; {:.3f}x", eight, many),
                    fmt::format("{:.2f} 倍；{:.3f} 倍", eight, many)},
          .decided = {},
          .why = {"Counted in the algorithm's list of steps; in general 2 (N - 1) / N.",
                  "由算法的步骤表数得；一般为 2 (N - 1) / N。"},
          .formula = {"2 (N - 1) / N, counted in collective::ring",
                      "2 (N - 1) / N，在 collective::ring 中逐步数出"},
          .inputs = {"N = 8; 128", "N = 8；128"},
          .command = "lockstep bench collective --collective all_reduce --ranks 8 --bytes 67108864"};
}

Fact ring_time(const Basis& basis) {
  const config::ClusterConfig& c = basis.run().cluster;
  const double bytes = 10e9 * ring_sends(128);
  const double nic = bytes / c.nic_bandwidth, fast = bytes / c.nvlink_bandwidth;
  return {
      .id = "ring-time",
      .group = Group::network,
      .sources = "B",
      .claim = {"All-reducing 10 GB over 128 GPUs takes 0.4 s over NICs, 0.044 s over NVLink.",
                "128 块 GPU 对 10 GB 做 all-reduce，走网卡 0.4 s，走 NVLink 0.044 s。"},
      .stated = {"0.4 s; 0.044 s", "0.4 s；0.044 s"},
      .figures = {{digits(0.4, 0.1), nic}, {digits(0.044, 0.001), fast}},
      .unit = "s",
      .shown = {fmt::format("{:.3f} s; {:.4f} s", nic, fast), fmt::format("{:.3f} s；{:.4f} s", nic, fast)},
      .decided = {},
      .why = {fmt::format("{:.2f} GB sent at line rate, without latency or losses.", bytes / 1e9),
              fmt::format("按线速发送 {:.2f} GB，不计延迟与损耗。", bytes / 1e9)},
      .formula = {"10 GB x 2 (N - 1) / N / bandwidth", "10 GB x 2 (N - 1) / N / 带宽"},
      .inputs = {fmt::format("N = 128; {:g}, {:g} bytes/s", c.nic_bandwidth, c.nvlink_bandwidth),
                 fmt::format("N = 128；{:g}、{:g} 字节/秒", c.nic_bandwidth, c.nvlink_bandwidth)},
      .command = "lockstep simulate " + run_405b_file + "   # How transfers go: what real ones take"};
}

Fact ring_rounds(const Basis& basis) {
  const int rounds = rounds_of("ring", static_cast<int>(basis.gpus()));
  return {.id = "ring-rounds",
          .group = Group::network,
          .sources = "A",
          .claim = {"A ring over 16,384 ranks has 32,766 rounds.", "16384 个进程的环有 32766 轮。"},
          .stated = {"32,766", "32766"},
          .figures = {{digits(32766, 0.5), static_cast<double>(rounds)}},
          .unit = "rounds",
          .shown = {format_thousands(rounds), format_thousands(rounds)},
          .decided = {},
          .why = {fmt::format("2 (N - 1); {:.1f} ms at 1 us a hop.", rounds * 1e-3),
                  fmt::format("2 (N - 1)；每跳 1 us 就是 {:.1f} ms。", rounds * 1e-3)},
          .formula = {"2 (N - 1), counted in the ring's round patterns", "2 (N - 1)，在环的各轮中数出"},
          .inputs = same(fmt::format("N = {:.0f}", basis.gpus())),
          .command = "lockstep simulate " + run_405b_file + " --set cluster.collective_algorithm=ring"};
}

Fact tree_rounds(const Basis& basis) {
  const int ranks = static_cast<int>(basis.gpus());
  const int rounds = rounds_of("halving_doubling", ranks), binary = rounds_of("tree", ranks, 8);
  const int64_t group = basis.run().parallel.dp * basis.run().parallel.cp;
  return {.id = "tree-rounds",
          .group = Group::network,
          .sources = "A",
          .claim = {"A tree over 16,384 ranks has 28 rounds.", "16384 个进程的树有 28 轮。"},
          .stated = {"28", "28"},
          .figures = {{digits(28, 0.5), static_cast<double>(rounds)}},
          .unit = "rounds",
          .shown = {std::to_string(rounds), std::to_string(rounds)},
          .decided = {},
          .why = {fmt::format("2 log2 N, of halving and doubling; a double binary tree with 8 pieces in "
                              "flight has {}. No tensor "
                              "of this run is reduced over all ranks: groups have {}.",
                              binary, group),
                  fmt::format("折半加倍算法为 2 log2 N；双二叉树不少于 {} "
                              "轮。本次训练没有张量在全部进程上归约：数据并行组只有 "
                              "{} 个进程。",
                              binary, group)},
          .formula = {"2 log2 N, counted in halving_doubling's round patterns",
                      "2 log2 N，在 halving_doubling 的各轮中数出"},
          .inputs = same(fmt::format("N = {}", ranks)),
          .command =
              "lockstep simulate " + run_405b_file + " --set cluster.collective_algorithm=halving_doubling"};
}

Fact rounds_ratio(const Basis& basis) {
  const int ranks = static_cast<int>(basis.gpus());
  const int ring = rounds_of("ring", ranks), tree = rounds_of("halving_doubling", ranks);
  const double ratio = static_cast<double>(ring) / tree;
  return {.id = "rounds-ratio",
          .group = Group::network,
          .sources = "A",
          .claim = {"The tree has over a thousand times fewer rounds.", "树的轮数少一千倍以上。"},
          .stated = {"over 1,000x", "一千倍以上"},
          .figures = {{over(1000), ratio}},
          .unit = "x",
          .shown = {whole(ratio) + "x", whole(ratio) + " 倍"},
          .decided = {},
          .why = {"Rounds are latency alone; each round of halving and doubling moves far more bytes.",
                  "轮数只关乎延迟；折半加倍的每一轮搬运的字节多得多。"},
          .formula = {"ring's rounds / halving and doubling's", "环的轮数 / 折半倍增的轮数"},
          .inputs = same(fmt::format("{} / {}", ring, tree)),
          .command = "lockstep facts --explain tree-rounds"};
}

}  // namespace

std::vector<Fact> network_rows(const Basis& basis) {
  return {nvlink(basis),    nic_ratio(basis),   pod(basis),         peak(basis),        ring_bytes(basis),
          ring_time(basis), ring_rounds(basis), tree_rounds(basis), rounds_ratio(basis)};
}

}  // namespace lockstep::facts
