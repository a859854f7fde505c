// lockstep calibrate
#include <fmt/chrono.h>
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <csignal>
#include <cstdlib>
#include <ctime>
#include <filesystem>
#include <fstream>
#include <set>
#include <system_error>

#include "base/error.hpp"
#include "base/json.hpp"
#include "base/units.hpp"
#include "cli/calibration_run.hpp"
#include "cli/commands.hpp"
#include "cli/flags.hpp"
#include "cli/machine.hpp"
#include "cli/output.hpp"
#include "cli/output_place.hpp"
#include "config/cluster_file.hpp"
#include "observe/atomic_file.hpp"

namespace lockstep::cli {

namespace {

namespace fs = std::filesystem;

// Only what an earlier calibration wrote may go.
void check_output(const fs::path& file) {
  check_output_place(fmt::format("--output {}", file.string()), file);
  std::error_code error;
  if (!fs::exists(file, error)) return;
  std::string begin(config::calibration_first_line.size(), ' ');
  std::ifstream(file).read(begin.data(), static_cast<std::streamsize>(begin.size()));
  if (begin == config::calibration_first_line) return;
  throw UsageError(
      fmt::format("--output {}: is there, and no file that `lockstep calibrate` wrote. Give another name",
                  file.string()));
}

config::Dtype dtype_of(const std::string& name) {
  for (const config::Dtype dtype : {config::Dtype::bf16, config::Dtype::fp32, config::Dtype::fp64}) {
    if (name == config::to_string(dtype)) return dtype;
  }
  throw UsageError(fmt::format("--dtype {}: must be bf16, fp32 or fp64", name));
}

std::vector<int> checked_workers(const std::vector<int64_t>& given) {
  const std::set<int64_t> ascending(given.begin(), given.end());
  if (ascending.size() != given.size()) throw UsageError("--workers: name each number once");
  return {ascending.begin(), ascending.end()};
}

// When, on what, by which build, and what the figures hold for.
std::vector<std::string> header(const CalibrationPlan& plan, const Calibration& found) {
  const std::time_t now = std::time(nullptr);
  std::string workers;
  for (const int ranks : plan.workers) workers += (workers.empty() ? "" : ", ") + std::to_string(ranks);
  return {
      std::string(config::calibration_first_line.substr(2)),  // without "# "
      "`lockstep simulate`, `plan` and `train` model runs on it by cluster.file, the first two by --cluster.",
      "",
      fmt::format("when     {:%Y-%m-%d %H:%M:%S} UTC{}", fmt::gmtime(now),
                  plan.quick ? ", --quick: few sizes, rough" : ""),
      fmt::format("machine  {}, {} core{}", processor_name(), plan.cores, plan.cores == 1 ? "" : "s"),
      fmt::format("build    lockstep {}, worker {}", LOCKSTEP_VERSION, found.worker_build),
      fmt::format("kernels  {}: {} ops of {} small runs; the curves hold for this type",
                  config::to_string(plan.dtype), found.kernels, found.runs.size()),
      fmt::format("workers  {}: collectives between so many processes; where they are more than the cores, "
                  "their times",
                  workers),
      "         contain what each waited for a core",
      ""};
}

// Smallest and largest.
std::string all_reduce_line(const config::ClusterConfig& c, int ranks) {
  std::string sizes;
  for (const config::TimedTransfer& t : c.all_reduce_times) {
    if (t.ranks == ranks) {
      sizes += fmt::format("{}{} in {}", sizes.empty() ? "" : ", ", format_binary_bytes(t.bytes),
                           format_seconds(t.seconds));
    }
  }
  const size_t first = sizes.find(", "), last = sizes.rfind(", ");
  if (first != last) sizes.replace(first, last - first, " ...");
  return fmt::format("  all-reduce    {} workers: {}\n", ranks, sizes);
}

std::string text_of(const Calibration& found, const CalibrationPlan& plan, const std::string& file) {
  const config::ClusterConfig& c = found.cluster;
  const auto range = [](const config::Curve& curve, const char* unit) {
    return fmt::format("{:.1f} to {:.1f} % from {} on", 100 * curve.front().value, 100 * curve.back().value,
                       format_quantity(curve.front().at, unit));
  };
  std::string text = fmt::format("{}, {} core{}, {} (measured)\n", c.gpu, c.cores, c.cores == 1 ? "" : "s",
                                 config::to_string(plan.dtype));
  text +=
      fmt::format("  peak          {} a core in bf16, {} in fp32, {} in fp64\n",
                  format_quantity(c.peak_flops_bf16, "FLOP/s"), format_quantity(c.peak_flops_fp32, "FLOP/s"),
                  format_quantity(c.peak_flops_fp64, "FLOP/s"));
  text += fmt::format("  gemm          {}\n", range(c.gemm_curve, "FLOP"));
  text += fmt::format("  its gradients {}\n", range(c.weight_gradient_curve, "FLOP"));
  text += fmt::format("  attention     {}\n", range(c.attention_curve, "FLOP"));
  text += fmt::format("  memory        {} of {}\n", range(c.memory_curve, "B"),
                      format_quantity(c.memory_bandwidth, "B/s"));
  text += fmt::format("  norms, rotary {}\n", range(c.row_curve, "B"));
  text += fmt::format("  exponentials  {}\n", range(c.exponential_curve, "B"));
  text += fmt::format("  between ops   {}; between steps {}\n", format_seconds(c.launch_seconds),
                      format_seconds(c.step_overhead));
  if (c.cores > 1) {
    text += fmt::format("  busy cores    kernels take {:.1f} % longer with a worker on every core\n",
                        100 * c.busy_slowdown);
  }
  if (c.core_switch_seconds > 0) {
    text += fmt::format("  shared cores  {} of a core each time that a worker gives it to another\n",
                        format_seconds(c.core_switch_seconds));
  }
  for (const int ranks : plan.workers) text += all_reduce_line(c, ranks);
  text += "\nSteps of the runs that were timed, and what these figures say of them:\n";
  for (const CheckedRun& run : found.runs) {
    text += fmt::format("  {:<40} measured {:>8}  predicted {:>8}  {:+.1f} %\n", run.what,
                        format_seconds(run.measured), format_seconds(run.predicted),
                        100 * (run.predicted / run.measured - 1));
  }
  if (found.worst() > 0.15) {
    text +=
        "These should agree within 15 %: the machine was probably busy with other work. Measure again when "
        "it "
        "is not.\n";
  }
  return text + fmt::format("\n{}\nnext:\n  lockstep simulate RUN.toml --cluster {}\n", file, file);
}

Json json_of(const Calibration& found, const std::string& file) {
  const config::ClusterConfig& c = found.cluster;
  Json out = {{"file", file},
              {"cores", c.cores},
              {"peak_flops_bf16", c.peak_flops_bf16},
              {"peak_flops_fp32", c.peak_flops_fp32},
              {"peak_flops_fp64", c.peak_flops_fp64},
              {"memory_bandwidth", c.memory_bandwidth},
              {"launch_seconds", c.launch_seconds},
              {"step_overhead", c.step_overhead},
              {"busy_slowdown", c.busy_slowdown},
              {"core_switch_seconds", c.core_switch_seconds}};
  out["runs"] = Json::array();
  for (const CheckedRun& run : found.runs) {
    out["runs"].push_back(
        {{"run", run.what}, {"measured_seconds", run.measured}, {"predicted_seconds", run.predicted}});
  }
  return out;
}

}  // namespace

int calibrate(const Arguments& arguments) {
  std::string output = "cluster.toml", dtype = "bf16";
  std::vector<int64_t> workers = {2, 4, 8};
  CalibrationPlan plan;
  bool json = false;
  Flags flags("calibrate", "lockstep calibrate --output this-machine.toml --workers 2,4,8");
  flags.text(output, "--output", "FILE", "the cluster file")
      .numbers(workers, "--workers", "LIST", "sizes of the groups whose collectives are timed",
               {2, config::max_local_workers})
      .text(dtype, "--dtype", "TYPE", "bf16, fp32 or fp64: of the kernels whose efficiency is measured")
      .toggle(plan.quick, "--quick", "few sizes and repetitions: rough figures in a few seconds")
      .toggle(json, "--json", "one JSON document on standard output");
  if (!flags.parse(arguments)) return exit_ok;
  plan.dtype = dtype_of(dtype);
  plan.workers = checked_workers(workers);
  plan.cores = usable_cores();
  check_output(output);
  plan.worker = resilience::find_worker();

  const CalibrationEnd end = measure_machine(plan);
  if (end.signal != 0) {
    log("interrupted: nothing was written");
    return 128 + end.signal;
  }
  observe::write_file_atomically(output,
                                 cluster::cluster_file_text(end.found.cluster, header(plan, end.found)));
  if (json) {
    print_json(json_of(end.found, output));
  } else {
    print(text_of(end.found, plan, output));
  }
  return exit_ok;
}

}  // namespace lockstep::cli
