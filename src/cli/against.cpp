#include "cli/against.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <map>
#include <optional>
#include <set>

#include "base/error.hpp"
#include "base/json.hpp"
#include "base/units.hpp"
#include "cli/prediction.hpp"
#include "config/schema.hpp"
#include "cost/op_prices.hpp"
#include "observe/run_folder.hpp"
#include "observe/run_store.hpp"
#include "observe/span.hpp"

namespace lockstep::cli {

namespace {

namespace fs = std::filesystem;
using parallel::ActionKind;

enum Part : size_t { gemm, attention, memory, optimizer, data, tp, cp, pp, dp, other };
constexpr size_t part_count = MeasuredRun::part_count;

constexpr std::array<std::pair<std::string_view, std::string_view>, part_count> part_words = {{
    {"gemm", "matrix products"},
    {"attention", "fused attention"},
    {"memory", "kernels bound by memory traffic"},
    {"optimizer", "kernels of norm and optimizer"},
    {"data", "reading the batch"},
    {"tp", "tensor-parallel collectives"},
    {"cp", "context-parallel collectives"},
    {"pp", "waiting for pipeline messages and stages, bubble included"},
    {"dp", "waiting for data-parallel collectives"},
    {"other", "between the ops; the end's barrier"},
}};

using Seconds = std::array<double, part_count>;

Part part_of(ActionKind action, model::OpKind kind) {
  if (action == ActionKind::gradient_norm || action == ActionKind::optimizer_step) return optimizer;
  if (kind == model::OpKind::gemm) return gemm;
  if (kind == model::OpKind::attention) return attention;
  return kind == model::OpKind::host ? data : memory;
}

struct ProgramKernels {
  std::map<std::string, Part, std::less<>> part_of_name;
  Seconds seconds{};         // mean over ranks, not stretched
  double step_overhead = 0;  // that data has, mean over ranks
};

ProgramKernels kernels_of(const parallel::Layout& layout, const std::vector<parallel::Program>& programs) {
  const cost::OpPrices prices(layout.run());
  ProgramKernels out;
  for (const parallel::Program& program : programs) {
    for (const parallel::Action& action : program.actions) {
      for (const model::Op& op : parallel::action_ops(layout, program.stage, action)) {
        if (!cost::is_kernel(op.kind)) continue;
        const Part part = part_of(action.kind, op.kind);
        out.part_of_name.emplace(op.name, part);
        out.seconds[part] += prices.kernel_seconds(op) / layout.stages();
        if (op.kind == model::OpKind::host) out.step_overhead += prices.step_overhead() / layout.stages();
      }
    }
  }
  return out;
}

// What is left of `total` is other.
void fill_other(Seconds& seconds, double total) {
  seconds[other] = 0;
  double sum = 0;
  for (const double one : seconds) sum += one;
  const double left = total - sum;
  seconds[other] = std::abs(left) < 1e-9 * total ? 0 : left;  // rounding is no part
}

Seconds predicted_parts(const ProgramKernels& kernels, const sim::SharedStep& shared) {
  Seconds seconds = kernels.seconds;
  double sum = -seconds[data];
  for (const double one : seconds) sum += one;
  const sim::CoreWaits& for_core = shared.core_waits;
  for (double& one : seconds) one *= 1 + (sum > 0 ? for_core.kernels / sum : 0);
  const cost::StepSplit& split = shared.step.split;
  // What a worker does between two steps is part of other.
  seconds[data] = std::max(0.0, split.data - kernels.step_overhead * shared.stretch);
  seconds[tp] = split.tp + for_core.tp;
  seconds[cp] = split.cp + for_core.cp;
  seconds[pp] = split.pp + split.bubble + for_core.pp;
  seconds[dp] = split.dp + for_core.dp;
  fill_other(seconds, shared.step.seconds);
  return seconds;
}

// Keys that say what a step computes and how it is cut.
bool shapes_a_step(const config::Key& key) {
  static const std::set<std::string, std::less<>> others = {
      "train.sequence", "train.global_batch", "train.dtype", "train.optimizer", "data.document_mask"};
  if (!key.is_built() || key.path() == "model.preset") return false;
  return key.table == "model" || key.table == "parallel" || others.count(key.path()) > 0;
}

void check_same(const config::RunFile& run, const config::RunFile& real, const fs::path& folder) {
  std::string differences;
  for (const config::Key& key : config::schema()) {
    if (!shapes_a_step(key)) continue;
    const std::string here = config::to_literal(config::read_key(key, run)),
                      there = config::to_literal(config::read_key(key, real));
    if (here != there) {
      differences += fmt::format("\n  {}: {} here, {} in the run", key.path(), config::shortened(here),
                                 config::shortened(there));
    }
  }
  if (differences.empty()) return;
  throw UsageError(fmt::format(
      "--against {0}: that run is another one, so its steps say nothing about this prediction:{1}\n"
      "  simulate {0}/run.toml, or give those keys by --set",
      folder.string(), differences));
}

[[noreturn]] void refuse_file(const fs::path& file, const std::string& why) {
  throw RunError(
      fmt::format("{}: {}; restore the file, or name another run in --against", file.string(), why));
}

// A rank's spans, at least one of each of the steps.
observe::SpanFile load_rank(const fs::path& path, int64_t rank, const std::set<int64_t>& steps) {
  observe::SpanFile file;
  try {
    file = observe::load_spans(path);
  } catch (const RunError& error) {
    throw RunError(fmt::format("{}; --against needs the spans of every rank: restore it, or train once more",
                               error.what()));
  }
  if (file.rank != rank) {
    refuse_file(path, fmt::format("holds the spans of rank {}, not of rank {}", file.rank, rank));
  }
  if (file.dropped > 0) {
    refuse_file(path, fmt::format("{} spans came after the recorder was full (train with fewer "
                                  "train.trace_steps)",
                                  file.dropped));
  }
  std::set<int64_t> missing = steps;
  for (const observe::Span& span : file.spans) missing.erase(span.step);
  if (!missing.empty()) refuse_file(path, fmt::format("holds no span of step {}", *missing.begin()));
  return file;
}

// Kernels of the traced steps, mean over ranks and steps.
Seconds traced_kernels(const ProgramKernels& kernels, const fs::path& trace, int64_t ranks,
                       const std::set<int64_t>& steps) {
  Seconds seconds{};
  const double share = 1.0 / static_cast<double>(ranks * static_cast<int64_t>(steps.size()));
  for (int64_t rank = 0; rank < ranks; ++rank) {
    const observe::SpanFile file = load_rank(trace / fmt::format("rank-{}.spans", rank), rank, steps);
    for (const observe::Span& span : file.spans) {
      if (steps.count(span.step) == 0) continue;
      if (span.stream != observe::Stream::compute && span.stream != observe::Stream::host) continue;
      const auto part = kernels.part_of_name.find(file.names.at(span.name));
      if (part == kernels.part_of_name.end()) continue;  // shows up as other
      seconds[part->second] += static_cast<double>(span.end_ns - span.start_ns) * 1e-9 * share;
    }
  }
  return seconds;
}

void add_waits(Seconds& seconds, const observe::ExposedSeconds& waits, double share) {
  seconds[tp] += waits.tp * share;
  seconds[cp] += waits.cp * share;
  seconds[pp] += waits.pp * share;
  seconds[dp] += waits.dp * share;
}

// Times of the steady steps that a run can have had; waits of those whose waits all came.
void check_steps(const std::vector<observe::StepRecord>& steps, int64_t first, const fs::path& database) {
  for (const observe::StepRecord& step : steps) {
    if (step.step < first || step.skipped) continue;
    if (!(step.seconds > 0) || !std::isfinite(step.seconds)) {
      refuse_file(database, fmt::format("step {} took {} seconds", step.step, step.seconds));
    }
    if (!step.waits) continue;
    const observe::ExposedSeconds& e = step.waits->exposed;
    for (const double seconds : {e.tp, e.cp, e.pp, e.dp}) {
      if (seconds >= 0 && std::isfinite(seconds)) continue;
      refuse_file(database, fmt::format("step {} waited {} seconds", step.step, seconds));
    }
  }
}

// The steps that the workers traced, whose waits all came.
std::vector<observe::StepRecord> traced_steps(const config::RunFile& real,
                                              const std::vector<observe::StepRecord>& steps) {
  const int64_t first = std::max(real.train.trace_first_step, first_steady_step(real.train));
  std::vector<observe::StepRecord> out;
  for (const observe::StepRecord& step : steps) {
    const bool traced =
        step.step >= first && step.step < real.train.trace_first_step + real.train.trace_steps;
    if (traced && step.waits && !step.skipped) out.push_back(step);
  }
  return out;
}

Seconds measured_parts(const ProgramKernels& kernels, const config::RunFile& real, const fs::path& trace,
                       const std::vector<observe::StepRecord>& traced) {
  std::set<int64_t> numbers;
  for (const observe::StepRecord& step : traced) numbers.insert(step.step);
  Seconds seconds = traced_kernels(kernels, trace, real.parallel.world_size(), numbers);
  const double share = 1.0 / static_cast<double>(traced.size());
  double total = 0;
  for (const observe::StepRecord& step : traced) {
    add_waits(seconds, step.waits->exposed, share);
    total += step.seconds * share;
  }
  fill_other(seconds, total);
  return seconds;
}

}  // namespace

MeasuredRun read_measured_run(const config::RunFile& run, const std::vector<parallel::Program>& programs,
                              const fs::path& folder) {
  const observe::RunFolder real_folder = observe::RunFolder::open(folder);
  const config::RunFile real = config::load_run_file(real_folder.run_toml(), {});
  check_same(run, real, folder);
  const std::vector<observe::StepRecord> steps = observe::RunStore::open(real_folder.database()).steps();
  MeasuredRun m;
  m.directory = folder.string();
  m.first_step = first_steady_step(real.train);
  check_steps(steps, m.first_step, real_folder.database());
  m.seconds = median_step_seconds(steps, m.first_step);
  m.steps = std::count_if(steps.begin(), steps.end(),
                          [&](const auto& step) { return step.step >= m.first_step && !step.skipped; });
  const std::vector<observe::StepRecord> traced = traced_steps(real, steps);
  if (traced.empty()) {
    throw UsageError(
        fmt::format("--against {}: that run traced no step from step {} on; train with "
                    "train.trace_steps of at least 1, and beyond train.trace_first_step",
                    folder.string(), m.first_step));
  }
  m.first_traced = traced.front().step;
  m.traced = static_cast<int64_t>(traced.size());
  for (const observe::StepRecord& step : traced) {
    m.traced_seconds += step.seconds / static_cast<double>(m.traced);
  }
  m.parts = measured_parts(kernels_of(parallel::Layout(run), programs), real, real_folder.trace(), traced);
  return m;
}

Comparison compare(const config::RunFile& run, const std::vector<parallel::Program>& programs,
                   const sim::SharedStep& predicted, const MeasuredRun& measured) {
  Comparison c;
  c.cluster = cluster_name(run);
  c.stretch = predicted.stretch;
  c.predicted_seconds = predicted.step.seconds;
  c.measured = measured;
  const Seconds here = predicted_parts(kernels_of(parallel::Layout(run), programs), predicted);
  for (size_t i = 0; i < part_count; ++i) {
    c.parts.push_back({part_words[i].first, part_words[i].second, here[i], measured.parts[i]});
  }
  return c;
}

Json comparison_json(const Comparison& c) {
  Json out = {{"run_directory", c.measured.directory},
              {"cluster", c.cluster},
              {"predicted_seconds", c.predicted_seconds},
              {"measured_seconds", c.measured.seconds},
              {"error", c.predicted_seconds / c.measured.seconds - 1},
              {"measured_steps", c.measured.steps},
              {"stretch", c.stretch},
              {"traced_steps", c.measured.traced},
              {"traced_seconds", c.measured.traced_seconds}};
  out["parts"] = Json::array();
  for (const ComparedPart& part : c.parts) {
    out["parts"].push_back(
        {{"part", part.name}, {"predicted_seconds", part.predicted}, {"measured_seconds", part.measured}});
  }
  return out;
}

std::string comparison_text(const Comparison& c, const cost::Style& style) {
  std::string text = fmt::format(
      "\nPredicted with {}, measured in {}.\nParts are means over ranks and, measured, over {} traced step{} "
      "from step {} on, which took {} each.\n",
      c.cluster, c.measured.directory, c.measured.traced, c.measured.traced == 1 ? "" : "s",
      c.measured.first_traced, format_seconds(c.measured.traced_seconds));
  if (c.stretch > 1) {
    text += fmt::format(
        "The workers share cores: with their waits for a core, kernels take {:.2f} times as long as alone. "
        "Parts\nhave those waits where workers spend them: after what they last waited for.\n",
        c.stretch);
  }
  cost::TextTable table(style);
  table.header({"part", "predicted", "measured"});
  for (const ComparedPart& part : c.parts) {
    if (part.predicted == 0 && part.measured == 0) continue;
    table.row({fmt::format("{:<9}  {}", part.name, part.meaning), format_seconds(part.predicted),
               format_seconds(part.measured)},
              part.name);
  }
  table.row({"step", format_seconds(c.predicted_seconds), format_seconds(c.measured.seconds)});
  return text + table.text() +
         style.bold(fmt::format("Predicted {}.", off_by(c.predicted_seconds, c.measured.seconds))) +
         style.dim(fmt::format(" The measured step is the middle of {} from step {} on.", c.measured.steps,
                               c.measured.first_step)) +
         "\n";
}

}  // namespace lockstep::cli
