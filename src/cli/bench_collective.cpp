// lockstep bench collective
#include <fmt/format.h>

#include <algorithm>

#include "base/error.hpp"
#include "base/json.hpp"
#include "cli/commands.hpp"
#include "cli/flags.hpp"
#include "cli/machine.hpp"
#include "cli/output.hpp"
#include "collective/steps.hpp"
#include "comm/bench.hpp"

namespace lockstep::cli {

namespace {

constexpr int64_t most_ranks = 256, most_bytes = int64_t{1} << 34;

// The reduction's name in nccl-tests' table; "none" for collectives that only move data.
const char* reduction(collective::Collective c) {
  const bool reduces = c == collective::Collective::all_reduce || c == collective::Collective::reduce_scatter;
  return reduces ? "sum" : "none";
}

std::string row_text(const comm::BenchRow& row, const char* redop) {
  return fmt::format("{:>12} {:>12} {:>8} {:>8} {:>12.2f} {:>10.3f} {:>10.3f} {:>8}\n", row.bytes,
                     row.bytes / 4, "float", redop, row.microseconds, row.algbw_gbps, row.busbw_gbps,
                     row.wrong);
}

// UsageError when a size does not hold whole elements, the same number for each rank's part where there are
// parts.
void check_size(const comm::BenchOptions& options, int64_t size) {
  const bool parts = options.collective == collective::Collective::all_gather ||
                     options.collective == collective::Collective::reduce_scatter;
  const int64_t unit = 4 * (parts ? options.ranks : 1);
  if (size % unit == 0) return;
  throw UsageError(
      fmt::format("--bytes: {} is not a multiple of {}{}; the nearest is {}", size, unit,
                  parts ? ", 4 bytes an element and as many on each rank" : ", 4 bytes an element",
                  std::max<int64_t>(1, size / unit) * unit));
}

Json row_json(const comm::BenchRow& row) {
  return {{"collective", row.collective},
          {"algorithm", row.algorithm},
          {"ranks", row.ranks},
          {"bytes", row.bytes},
          {"microseconds", row.microseconds},
          {"algbw_gbps", row.algbw_gbps},
          {"busbw_gbps", row.busbw_gbps},
          {"wrong", row.wrong}};
}

}  // namespace

int bench_collective(const Arguments& arguments) {
  std::string name = "all_reduce", algorithm;
  int64_t ranks = 8;
  std::vector<int64_t> bytes = {1024, 65536, 4194304, 67108864};
  bool json = false;
  Flags flags("bench collective",
              "lockstep bench collective --collective all_reduce --ranks 8 --bytes 1024,67108864");
  flags.text(name, "--collective", "NAME", "all_reduce, all_gather, reduce_scatter or broadcast")
      .number(ranks, "--ranks", "N", "processes on this machine", {1, most_ranks})
      .numbers(bytes, "--bytes", "LIST", "sizes of the whole buffer of fp32", {4, most_bytes})
      .text(algorithm, "--algorithm", "NAME", "ring, direct, halving_doubling; otherwise what `train` uses")
      .toggle(json, "--json", "one JSON document on standard output");
  if (!flags.parse(arguments)) return exit_ok;

  comm::BenchOptions options;
  options.collective = collective::collective_of(name);
  options.ranks = static_cast<int>(ranks);
  options.algorithm = algorithm;
  // What is wrong with any of them is said before the first one is measured.
  if (!algorithm.empty()) collective::build(options.collective, algorithm, options.ranks);
  for (const int64_t size : bytes) check_size(options, size);

  if (!json) {
    print(fmt::format("{} between {} processes on {} cores, {}; measured, GB/s are 1e9 bytes a second\n\n",
                      name, ranks, usable_cores(),
                      algorithm.empty() ? "the algorithm that `train` uses" : algorithm));
    print(fmt::format("{:>12} {:>12} {:>8} {:>8} {:>12} {:>10} {:>10} {:>8}\n", "size (B)", "count", "type",
                      "redop", "time (us)", "algbw", "busbw", "wrong"));
  }
  Json list = Json::array();
  double sum_busbw = 0;
  size_t wrong = 0;
  for (const int64_t size : bytes) {
    options.bytes = {static_cast<size_t>(size)};
    finish_output();  // before the fork, and so that a row shows when it is there
    for (const comm::BenchRow& row : comm::bench_collective(options)) {
      if (!json) print(row_text(row, reduction(options.collective)));
      list.push_back(row_json(row));
      sum_busbw += row.busbw_gbps;
      wrong += row.wrong;
    }
  }
  if (json) {
    print_json(list);
  } else {
    print(
        fmt::format("\naverage bus bandwidth {:.3f} GB/s\n", sum_busbw / static_cast<double>(bytes.size())));
  }
  if (wrong != 0) throw RunError(fmt::format("{} elements came out wrong", wrong));
  return exit_ok;
}

}  // namespace lockstep::cli
