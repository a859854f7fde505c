#include "cli/kernel_timing.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <fstream>
#include <map>
#include <utility>

#include "base/error.hpp"
#include "cli/step_assembly.hpp"
#include "config/load.hpp"
#include "config/value.hpp"
#include "observe/run_folder.hpp"
#include "observe/run_store.hpp"
#include "observe/span.hpp"
#include "parallel/program.hpp"

namespace lockstep::cli {

namespace {

namespace fs = std::filesystem;

constexpr int64_t warm_steps = 3;

// Two documents of letters; what they say does not change what a step takes.
void write_text(const fs::path& folder) {
  fs::create_directories(folder);
  for (const char* name : {"trained.txt", "held_out.txt"}) {
    std::string text;
    for (int i = 0; i < (1 << 16); ++i) text += static_cast<char>('a' + (i * i / 7 + i) % 26);
    std::ofstream out(folder / name, std::ios::binary);
    out << text;
    if (!out.flush()) throw RunError(fmt::format("{}: cannot be written", (folder / name).string()));
  }
}

config::RunFile run_of(const TimedShape& s, const TimingPlan& plan, const fs::path& text) {
  const std::string toml = fmt::format(
      "name = \"calibrate\"\n[model]\nlayers = 2\nhidden = {}\nffn = {}\nheads = {}\nkv_heads = {}\n"
      "vocab = 256\n[cluster]\npreset = \"local\"\ngpus = {}\n[parallel]\ntp = {}\ndp = {}\nmicro_batch = "
      "{}\n"
      "[train]\nsequence = {}\nglobal_batch = {}\nsteps = {}\ndtype = \"{}\"\ntrace_first_step = {}\n"
      "trace_steps = {}\neval_sequences = 1\n[data]\ntext = {}\nheld_out = [\"held_out\"]\n",
      s.hidden, s.ffn, s.heads, s.kv_heads, s.tp * s.dp, s.tp, s.dp, s.micro_batch, s.sequence,
      s.dp * s.micro_batch * s.micro_batches, warm_steps + 2 * plan.steps, config::to_string(plan.dtype),
      warm_steps + 1, plan.steps, config::to_literal(config::Value(text.string())));
  const config::Examined examined = config::examine_run_text(toml, text / "calibrate.toml", {});
  if (!examined.problems.empty()) throw UsageError(config::to_string(examined.problems));
  return examined.run;
}

struct ProgramOp {
  model::Op op;
  double count = 0;  // in a step of one rank
};

// One chunk a worker, so that ops of a name are of a size.
std::map<std::string, ProgramOp, std::less<>> kernels_of(const config::RunFile& run) {
  const parallel::Layout layout(run);
  std::map<std::string, ProgramOp, std::less<>> kernels;
  const parallel::Program program = parallel::build_step_programs(layout).front();
  for (const parallel::Action& action : program.actions) {
    for (const model::Op& op : parallel::action_ops(layout, 0, action)) {
      if (op.stream != model::Stream::compute) continue;
      ProgramOp& kernel = kernels[std::string(op.name)];
      kernel.op = op;
      ++kernel.count;
    }
  }
  return kernels;
}

double seconds_of(int64_t ns) { return static_cast<double>(ns) * 1e-9; }

// One worker's step: its ops in the order of their starts.
using StepSpans = std::map<int32_t, std::vector<observe::Span>>;

StepSpans steps_of(const observe::SpanFile& file) {
  StepSpans steps;
  for (const observe::Span& span : file.spans) {
    if (span.stream == observe::Stream::compute) steps[span.step].push_back(span);
  }
  for (auto& [step, spans] : steps) {
    std::sort(spans.begin(), spans.end(),
              [](const auto& a, const auto& b) { return a.start_ns < b.start_ns; });
  }
  return steps;
}

// What a lone worker spends between its ops, where nothing else can be.
void time_gaps(const StepSpans& steps, TimedRun& timed) {
  std::vector<double> between_ops, between_steps;
  const std::vector<observe::Span>* before = nullptr;
  for (const auto& [step, spans] : steps) {
    int64_t gaps = 0;
    for (size_t i = 1; i < spans.size(); ++i) {
      gaps += std::max<int64_t>(0, spans[i].start_ns - spans[i - 1].end_ns);
    }
    between_ops.push_back(seconds_of(gaps) / static_cast<double>(spans.size()));
    if (before != nullptr) {
      between_steps.push_back(seconds_of(spans.front().start_ns - before->back().end_ns));
    }
    before = &spans;
  }
  timed.seconds_between_ops = cluster::median(between_ops);
  timed.seconds_between_steps = cluster::median(between_steps);
}

// Every op by the middle of its times, and all of them longer by what the middle step's kernels took beyond
// that: some calls in every step are late (pages, caches, other programs), and no op's middle has them.
void add_samples(const std::map<std::string, std::vector<double>>& times, TimedRun& timed) {
  double sum = 0;
  const auto kernels = kernels_of(timed.run);
  for (const auto& [name, kernel] : kernels) {
    const auto found = times.find(name);
    if (found == times.end()) throw RunError(fmt::format("the trace has no {}", name));
    sum += cluster::median(found->second) * kernel.count;
  }
  const double late = timed.kernel_seconds / sum;
  for (const auto& [name, kernel] : kernels) {
    const bool memory = kernel.op.kind == model::OpKind::memory;
    const double size = memory ? static_cast<double>(kernel.op.bytes) : kernel.op.flops;
    timed.kernels.of(kernel.op).push_back({size, cluster::median(times.at(name)) * late, kernel.count});
  }
}

void read_traces(const observe::RunFolder& folder, TimedRun& timed) {
  std::map<std::string, std::vector<double>> times;  // seconds, by op
  std::vector<double> step_kernels;                  // seconds, of each rank's step
  StepSpans lone;
  for (int64_t rank = 0; rank < timed.run.parallel.world_size(); ++rank) {
    const observe::SpanFile file = observe::load_spans(folder.trace() / fmt::format("rank-{}.spans", rank));
    const StepSpans steps = steps_of(file);
    for (const auto& [step, spans] : steps) {
      double sum = 0;
      for (const observe::Span& span : spans) {
        const double seconds = seconds_of(span.end_ns - span.start_ns);
        times[file.names.at(span.name)].push_back(seconds);
        sum += seconds;
      }
      step_kernels.push_back(sum);
    }
    if (rank > 0) continue;
    lone = steps;
  }
  timed.kernel_seconds = cluster::median(step_kernels);
  if (timed.run.parallel.world_size() == 1) time_gaps(lone, timed);
  add_samples(times, timed);
}

}  // namespace

std::vector<cluster::KernelSample>& KernelSamples::of(const model::Op& op) {
  if (op.kind == model::OpKind::attention) return attention;
  if (op.kind == model::OpKind::gemm) {
    return op.work == model::Work::weight_gradient ? weight_gradient : gemm;
  }
  if (op.work == model::Work::rows) return rows;
  return op.work == model::Work::exponentials ? exponentials : memory;
}

void KernelSamples::add(const KernelSamples& more, double slowdown) {
  const auto append = [&](auto& to, const auto& from) {
    for (const cluster::KernelSample& sample : from) {
      to.push_back({sample.size, sample.seconds / slowdown, sample.count});
    }
  };
  append(gemm, more.gemm);
  append(weight_gradient, more.weight_gradient);
  append(attention, more.attention);
  append(memory, more.memory);
  append(rows, more.rows);
  append(exponentials, more.exponentials);
}

size_t KernelSamples::size() const {
  return gemm.size() + weight_gradient.size() + attention.size() + memory.size() + rows.size() +
         exponentials.size();
}

double busy_slowdown(const std::vector<TimedRun>& runs, int cores) {
  std::vector<double> alone, all_busy;
  TimedShape shape;
  for (const TimedRun& run : runs) {
    if (cores < 2 || run.shape.tp > 1 || run.shape.dp != cores) continue;
    shape = run.shape;
    all_busy.push_back(run.kernel_seconds);
  }
  if (all_busy.empty()) return 0;
  shape.dp = 1;
  for (const TimedRun& run : runs) {
    if (run.shape == shape) alone.push_back(run.kernel_seconds);
  }
  return std::max(0.0, cluster::median(all_busy) / cluster::median(alone) - 1);
}

TimingPlan timing_plan(config::Dtype dtype, int cores, int most_workers, bool quick) {
  TimingPlan plan;
  plan.dtype = dtype;
  plan.shapes.push_back({});
  if (cores > 1) {
    for (int round = 0; round < (quick ? 1 : 2); ++round) {  // in turn: a machine's speed drifts
      plan.shapes.push_back({.dp = cores});
      plan.shapes.push_back({});
    }
    plan.shapes.push_back({.tp = 2});
  }
  if (most_workers > cores) {
    const int64_t tp = most_workers % 2 == 0 ? 2 : 1;
    plan.shapes.push_back({.tp = tp, .dp = most_workers / tp});
  }
  if (quick) {
    plan.steps = 4;
    return plan;
  }
  plan.shapes.push_back(
      {.hidden = 32, .ffn = 96, .heads = 2, .kv_heads = 2, .sequence = 32, .micro_batch = 2});
  plan.shapes.push_back({.hidden = 64, .ffn = 192, .heads = 4, .kv_heads = 2, .sequence = 64});
  plan.shapes.push_back({.hidden = 256, .ffn = 768});
  plan.shapes.push_back({.hidden = 512,
                         .ffn = 1536,
                         .heads = 8,
                         .kv_heads = 8,
                         .sequence = 256,
                         .micro_batch = 2,
                         .micro_batches = 1});
  return plan;
}

TimedRunEnd time_run(const TimedShape& shape, const TimingPlan& plan, const fs::path& worker,
                     const fs::path& scratch) {
  write_text(scratch / "text");
  TimedRunEnd out;
  TimedRun& timed = out.timed;
  timed.shape = shape;
  timed.run = run_of(shape, plan, scratch / "text");
  fs::remove_all(scratch / "run");
  const observe::RunFolder folder =
      observe::RunFolder::create_at(scratch / "run", config::to_toml(timed.run));
  // As `lockstep train` does: keeping the steps is part of what a step costs.
  observe::RunStore store = observe::RunStore::create(folder.database());
  StepAssembly assembly(static_cast<size_t>(timed.run.parallel.world_size()));
  std::vector<double> seconds;
  resilience::LaunchPlan launch_plan;
  launch_plan.worker = worker;
  launch_plan.run_folder = folder.path();
  launch_plan.world_size = static_cast<int>(timed.run.parallel.world_size());
  resilience::LaunchListener listener;
  listener.message = [&](int, const observe::WorkerMessage& message) {
    if (const auto* peak = std::get_if<observe::MatrixPeak>(&message)) {
      timed.peak_flops = peak->flops / peak->cores;
    } else if (const auto* step = std::get_if<observe::StepRecord>(&message)) {
      // The first one that is not traced still has the last trace's record to write.
      if (step->step > warm_steps + plan.steps + 1) seconds.push_back(step->seconds);
      assembly.add(*step);
    } else if (const auto* waits = std::get_if<observe::WaitMessage>(&message)) {
      assembly.add(*waits);
    }
    while (const auto step = assembly.next()) store.append_step(step->record, step->ranks);
  };
  out.end = resilience::launch(launch_plan, listener);
  if (out.end.kind == resilience::LaunchEnd::Kind::failed) {
    throw RunError(fmt::format("a small run to time kernels failed: {}", out.end.text));
  }
  if (out.end.kind == resilience::LaunchEnd::Kind::interrupted) return out;
  timed.step_seconds = cluster::median(seconds);
  read_traces(folder, timed);
  return out;
}

}  // namespace lockstep::cli
