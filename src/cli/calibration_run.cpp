#include "cli/calibration_run.hpp"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <functional>
#include <system_error>

#include "base/error.hpp"
#include "cli/machine.hpp"
#include "cli/modelled_run.hpp"
#include "cli/prediction.hpp"
#include "comm/bench.hpp"
#include "comm/message_bench.hpp"
#include "observe/progress.hpp"
#include "resilience/signal_descriptor.hpp"
#include "sim/shared_cores.hpp"

namespace lockstep::cli {

namespace {

namespace fs = std::filesystem;
using collective::Collective;

struct Interrupted {
  int signal = 0;
};

// A folder for the runs, gone with the object.
class Scratch {
 public:
  Scratch() {
    std::error_code error;
    const fs::path parent = fs::temp_directory_path(error);
    if (error) {
      throw UsageError(fmt::format(
          "the folder for temporary files: {}; set TMPDIR to one that you may write to", error.message()));
    }
    std::string name = (parent / "lockstep-calibrate-XXXXXX").string();
    if (mkdtemp(name.data()) == nullptr) {
      throw RunError(fmt::format("{}: cannot be made: {}; set TMPDIR to a folder that you may write to", name,
                                 std::strerror(errno)));
    }
    path_ = name;
  }
  ~Scratch() {
    std::error_code ignored;
    fs::remove_all(path_, ignored);
  }
  Scratch(const Scratch&) = delete;
  Scratch& operator=(const Scratch&) = delete;
  const fs::path& path() const { return path_; }

 private:
  fs::path path_;
};

// The pieces of the measurement one after another: says how far it is, and stops between them.
class Pieces {
 public:
  explicit Pieces(int64_t number)
      : signals_({SIGINT, SIGTERM, SIGHUP}),
        number_(number),
        progress_(stderr, observe::detect_terminal(STDERR_FILENO), "calibrate", number) {}

  template <class F>
  void measure(const std::string& what, F&& piece) {
    if (const std::vector<int> pending = signals_.take(); !pending.empty())
      throw Interrupted{pending.front()};
    progress_.line(what);
    piece();
    const std::chrono::duration<double> passed = std::chrono::steady_clock::now() - start_;
    ++done_;
    const double left = static_cast<double>(number_ - done_) / static_cast<double>(done_);
    progress_.update(done_, passed.count() * left);
  }
  void finish() {
    if (const std::vector<int> pending = signals_.take(); !pending.empty())
      throw Interrupted{pending.front()};
    progress_.finish();
  }

 private:
  resilience::SignalDescriptor signals_;
  int64_t number_, done_ = 0;
  std::chrono::steady_clock::time_point start_ = std::chrono::steady_clock::now();
  observe::Progress progress_;
};

std::string what_of(const config::RunFile& run) {
  const config::ParallelConfig& p = run.parallel;
  std::string text =
      fmt::format("hidden {}, {} tokens, {} worker{}", run.model.hidden, run.train.sequence * p.micro_batch,
                  p.world_size(), p.world_size() == 1 ? "" : "s");
  for (const auto& [axis, size] : {std::pair{"tp", p.tp}, std::pair{"dp", p.dp}}) {
    if (size > 1) text += fmt::format(", {} {}", axis, size);
  }
  return text;
}

// FNV-1a, 64 bits (Fowler, Noll, Vo).
std::string digest(const fs::path& file) {
  std::ifstream in(file, std::ios::binary);
  uint64_t hash = 0xCBF29CE484222325u;
  for (char byte; in.get(byte);) hash = (hash ^ static_cast<unsigned char>(byte)) * 0x100000001B3u;
  return fmt::format("{:016x}", hash);
}

class Measurement {
 public:
  explicit Measurement(const CalibrationPlan& plan)
      : plan_(plan),
        timing_(
            timing_plan(plan.dtype, plan.cores, plan.workers.empty() ? 0 : plan.workers.back(), plan.quick)),
        pieces_(static_cast<int64_t>(timing_.shapes.size() + 2 + plan.workers.size() * 3 + 1)) {}

  Calibration all() {
    for (const TimedShape& shape : timing_.shapes) time_shape(shape);
    time_other_peaks();
    time_collectives();
    pieces_.measure("messages between 2 workers", [&] {
      for (const comm::MessageRow& row : comm::bench_messages(sizes(1), plan_.quick ? 3 : 7)) {
        messages_.push_back({2, static_cast<double>(row.bytes), row.microseconds * 1e-6});
      }
    });
    pieces_.finish();
    return figures();
  }

 private:
  TimedRun time_once(const TimedShape& shape, const TimingPlan& plan) {
    const TimedRunEnd end = time_run(shape, plan, plan_.worker, scratch_.path());
    if (end.end.kind == resilience::LaunchEnd::Kind::interrupted) throw Interrupted{end.end.signal};
    return end.timed;
  }

  void time_shape(const TimedShape& shape) {
    pieces_.measure(fmt::format("kernels: hidden {}, {} worker{}", shape.hidden, shape.tp * shape.dp,
                                shape.tp * shape.dp == 1 ? "" : "s"),
                    [&] { runs_.push_back(time_once(shape, timing_)); });
  }

  // The peaks of the types whose curves are not measured.
  void time_other_peaks() {
    for (const config::Dtype dtype : {config::Dtype::bf16, config::Dtype::fp32, config::Dtype::fp64}) {
      if (dtype == plan_.dtype) continue;
      pieces_.measure(fmt::format("peak in {}", config::to_string(dtype)), [&] {
        TimingPlan plan;
        plan.dtype = dtype;
        plan.steps = 2;
        *peak_in(cluster_, dtype) =
            time_once({.hidden = 32, .ffn = 96, .heads = 2, .kv_heads = 2, .sequence = 32}, plan).peak_flops;
      });
    }
  }

  // Bytes of whole tensors that `ranks` divide into elements of fp32.
  std::vector<size_t> sizes(int ranks) const {
    std::vector<size_t> out;
    const size_t unit = sizeof(float) * static_cast<size_t>(ranks);
    for (size_t bytes = 1024; bytes <= (size_t{16} << 20); bytes *= plan_.quick ? 128 : 4) {
      out.push_back((bytes + unit - 1) / unit * unit);
    }
    return out;
  }

  void time_collectives() {
    const std::pair<Collective, std::vector<config::TimedTransfer>*> all[] = {
        {Collective::all_reduce, &cluster_.all_reduce_times},
        {Collective::all_gather, &cluster_.all_gather_times},
        {Collective::reduce_scatter, &cluster_.reduce_scatter_times}};
    for (const int ranks : plan_.workers) {
      for (const auto& [collective, times] : all) {
        pieces_.measure(fmt::format("{} between {} workers", collective::name_of(collective), ranks), [&] {
          comm::BenchOptions options;
          options.collective = collective;
          options.ranks = ranks;
          options.bytes = sizes(ranks);
          options.repetitions = plan_.quick ? 3 : 7;
          for (const comm::BenchRow& row : comm::bench_collective(options)) {
            if (row.wrong != 0) throw RunError(fmt::format("{} elements came out wrong", row.wrong));
            times->push_back({ranks, static_cast<double>(row.bytes), row.microseconds * 1e-6});
          }
        });
      }
    }
  }

  static double* peak_in(config::ClusterConfig& cluster, config::Dtype dtype) {
    if (dtype == config::Dtype::bf16) return &cluster.peak_flops_bf16;
    return dtype == config::Dtype::fp32 ? &cluster.peak_flops_fp32 : &cluster.peak_flops_fp64;
  }

  // A run in which workers wait for a core says nothing of a kernel.
  bool has_cores(const TimedRun& run) const { return run.run.parallel.world_size() <= plan_.cores; }

  KernelSamples samples(double busy) const {
    KernelSamples all;
    for (const TimedRun& run : runs_) {
      if (!has_cores(run)) continue;
      const double others = static_cast<double>(run.run.parallel.world_size() - 1);
      all.add(run.kernels, 1 + busy * others / std::max(1, plan_.cores - 1));
    }
    return all;
  }

  void set_kernels(config::ClusterConfig& c) const {
    std::vector<double> between_ops, between_steps;
    double peak = 0;
    for (const TimedRun& run : runs_) {
      peak = std::max(peak, run.peak_flops);
      if (run.run.parallel.world_size() > 1) continue;
      between_ops.push_back(run.seconds_between_ops);
      between_steps.push_back(run.seconds_between_steps);
    }
    c.busy_slowdown = busy_slowdown(runs_, plan_.cores);
    const KernelSamples all = samples(c.busy_slowdown);
    // Some kernel may beat the square product that the peak is measured by.
    for (const auto* products : {&all.gemm, &all.weight_gradient, &all.attention}) {
      peak = std::max(peak, cluster::fastest_rate(*products));
    }
    *peak_in(c, plan_.dtype) = peak;
    c.memory_bandwidth = 0;
    for (const auto* kernels : {&all.memory, &all.rows, &all.exponentials}) {
      c.memory_bandwidth = std::max(c.memory_bandwidth, cluster::fastest_rate(*kernels));
    }
    c.gemm_curve = cluster::fit_curve(all.gemm, peak);
    c.weight_gradient_curve = cluster::fit_curve(all.weight_gradient, peak);
    c.attention_curve = cluster::fit_curve(all.attention, peak);
    c.memory_curve = cluster::fit_curve(all.memory, c.memory_bandwidth);
    c.row_curve = cluster::fit_curve(all.rows, c.memory_bandwidth);
    c.exponential_curve = cluster::fit_curve(all.exponentials, c.memory_bandwidth);
    c.gemm_efficiency = c.gemm_curve.back().value;
    c.attention_efficiency = c.attention_curve.back().value;
    c.memory_efficiency = c.memory_curve.back().value;
    c.launch_seconds = cluster::median(between_ops);
    c.step_overhead = cluster::median(between_steps);
  }

  // What the cores did in the step of workers that share them, beyond kernels and transfers, for each switch.
  void set_switching(config::ClusterConfig& c) const {
    const auto shared =
        std::find_if(runs_.begin(), runs_.end(), [&](const TimedRun& run) { return !has_cores(run); });
    if (shared == runs_.end()) return;
    config::RunFile priced = shared->run;
    priced.cluster = c;
    const parallel::Layout layout(priced);
    const std::vector<parallel::Program> programs = checked_programs(layout);
    sim::StepOptions options = sim::step_options(priced.simulate);
    options.jitter = false;
    const sim::CoreWork work =
        sim::core_work(layout, programs, options, sim::simulate_step(layout, programs, options));
    const double beyond = shared->step_seconds * static_cast<double>(plan_.cores) - work.seconds;
    c.core_switch_seconds = std::max(0.0, beyond / work.switches);
  }

  Calibration figures() const {
    Calibration found;
    config::ClusterConfig& c = found.cluster;
    c = runs_.front().run.cluster;  // the preset's: what no measurement replaces
    c.gpu = processor_name().empty() ? "CPU-worker" : processor_name() + " core";
    c.cores = plan_.cores;
    c.measured_dtype = config::to_string(plan_.dtype);
    for (const config::Dtype dtype : {config::Dtype::bf16, config::Dtype::fp32, config::Dtype::fp64}) {
      config::ClusterConfig measured = cluster_;
      *peak_in(c, dtype) = *peak_in(measured, dtype);
    }
    set_kernels(c);
    c.all_reduce_times = cluster_.all_reduce_times;
    c.all_gather_times = cluster_.all_gather_times;
    c.reduce_scatter_times = cluster_.reduce_scatter_times;
    c.message_times = messages_;
    // For what the tables do not have.
    const cluster::MessageLine line = cluster::fit_messages(messages_);
    c.nvlink_latency = c.nic_latency = line.latency;
    c.nvlink_bandwidth = c.nic_bandwidth = 1 / line.seconds_per_byte;
    c.network_efficiency = 1;
    set_switching(c);
    for (const TimedRun& run : runs_) {
      found.kernels += run.kernels.size();
      config::RunFile priced = run.run;
      priced.cluster = c;
      found.runs.push_back({what_of(run.run), run.step_seconds, predict_step(priced).seconds});
    }
    found.worker_build = digest(plan_.worker);
    return found;
  }

  const CalibrationPlan& plan_;
  TimingPlan timing_;
  Scratch scratch_;
  Pieces pieces_;
  std::vector<TimedRun> runs_;
  config::ClusterConfig cluster_;  // peaks and collectives, as they are measured
  std::vector<config::TimedTransfer> messages_;
};

}  // namespace

double Calibration::worst() const {
  double worst = 0;
  for (const CheckedRun& run : runs) worst = std::max(worst, std::abs(run.predicted / run.measured - 1));
  return worst;
}

CalibrationEnd measure_machine(const CalibrationPlan& plan) {
  try {
    return {Measurement(plan).all(), 0};
  } catch (const Interrupted& interrupted) {
    return {{}, interrupted.signal};
  }
}

}  // namespace lockstep::cli
