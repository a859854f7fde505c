// lockstep simulate RUN.toml
#include <fmt/format.h>

#include <filesystem>
#include <optional>
#include <system_error>
#include <thread>

#include "base/error.hpp"
#include "base/json.hpp"
#include "cli/against.hpp"
#include "cli/commands.hpp"
#include "cli/flags.hpp"
#include "cli/modelled_run.hpp"
#include "cli/output.hpp"
#include "cli/prediction.hpp"
#include "observe/trace_writer.hpp"
#include "plan/memory.hpp"
#include "plan/report.hpp"
#include "sim/report.hpp"
#include "sim/several_steps.hpp"
#include "sim/why.hpp"

namespace lockstep::cli {

namespace {

struct Wanted {
  std::string trace;               // file; empty: none
  std::vector<NumberRange> ranks;  // in the trace; empty: one of every pipeline stage
};

std::vector<int> traced_ranks(const Wanted& wanted, const parallel::Layout& layout, const std::string& file) {
  std::vector<int> out;
  if (wanted.trace.empty()) {
    if (!wanted.ranks.empty()) throw UsageError("--ranks says what the trace holds: give --trace FILE too");
    return out;
  }
  std::error_code error;
  if (std::filesystem::equivalent(wanted.trace, file, error)) {
    throw UsageError(fmt::format("--trace {}: is the run file itself. Give another name", wanted.trace));
  }
  const int64_t last = layout.mesh().size() - 1;
  for (const NumberRange& ranks : wanted.ranks) {
    if (ranks.high > last) {
      throw UsageError(fmt::format("--ranks: rank {}: the layout has ranks 0 to {}", ranks.high, last));
    }
    for (int64_t rank = ranks.low; rank <= ranks.high; ++rank) out.push_back(static_cast<int>(rank));
  }
  if (out.empty()) {
    for (int stage = 0; stage < layout.stages(); ++stage) out.push_back(layout.mesh().rank({0, 0, stage, 0}));
  }
  return out;
}

}  // namespace

int simulate(const Arguments& arguments) {
  std::string file, cluster, against;
  std::vector<std::string> overrides;
  Wanted wanted;
  int64_t steps = 1;
  std::optional<int64_t> seed;
  int64_t threads = std::max(1u, std::thread::hardware_concurrency());
  bool json = false, why = false;
  Flags flags("simulate",
              "lockstep simulate configs/llama3-405b-16k.toml --steps 3 --trace step.json --ranks 0-7,128");
  flags.required(file, "RUN.toml", "the run file")
      .list(overrides, "--set", "TABLE.KEY=VALUE", "overrides a key of the run file")
      .text(cluster, "--cluster", "FILE", "the cluster's figures, as `lockstep calibrate` writes them")
      .text(against, "--against", "RUN_FOLDER", "sets the step beside those of a real run of the same layout")
      .number(steps, "--steps", "N", "steps to simulate; figures are their means", {1, 1'000'000})
      .number(seed, "--seed", "S", "of the jitter; otherwise simulate.seed of the run file", {0})
      .number(threads, "--threads", "N",
              "to simulate with; the result is the same. Otherwise all cores' worth", {1, 1024})
      .text(wanted.trace, "--trace", "FILE",
            "writes the steps as a trace: Perfetto's format for FILE.pftrace, else Chrome's (JSON)")
      .ranges(wanted.ranks, "--ranks", "LIST",
              "ranks in the trace, such as 0-7,128; otherwise one of every pipeline stage",
              {0, std::numeric_limits<int>::max()})
      .toggle(
          why, "--why",
          "the critical path, what if parts of it were free, and who made others wait (of the first step)")
      .toggle(json, "--json", "one JSON document on standard output");
  if (!flags.parse(arguments)) return exit_ok;

  add_cluster_file(overrides, cluster);
  const config::RunFile run = config::load_run_file(file, overrides);
  const parallel::Layout layout(run);
  sim::StepOptions options = sim::step_options(run.simulate);
  if (seed) options.seed = *seed;
  options.threads = static_cast<int>(threads);
  options.traced_ranks = traced_ranks(wanted, layout, file);
  const std::vector<parallel::Program> programs = checked_programs(layout);

  sim::SeveralSteps all;
  std::optional<sim::Why> explained;
  sim::SharedStep shared;
  for (options.step = 0; options.step < steps; ++options.step) {
    shared = sim::simulate_shared_step(layout, programs, options);
    if (why && options.step == 0) explained = sim::explain(layout, programs, options, shared.step);
    all.add(shared.step);
  }
  const sim::StepResult result = shared.step = all.summary();
  if (!wanted.trace.empty()) sim::write_trace(wanted.trace, layout.mesh(), result.traces);
  std::optional<Comparison> comparison;
  if (!against.empty()) comparison = compare(run, programs, shared, against);
  const lockstep::plan::MemoryReport memory = lockstep::plan::memory_of(layout, programs);
  if (json) {
    Json document = sim::simulate_json(run, result, all.seconds(), memory_json(memory));
    if (explained) document["why"] = sim::why_json(*explained);
    if (comparison) document["against"] = comparison_json(*comparison);
    print_json(document);
    return exit_ok;
  }
  const cost::Style style = text_style();
  print(sim::simulate_text(run, result, all.seconds(), style) + memory_text(memory, style));
  if (explained) print(sim::why_text(layout.mesh(), *explained, style));
  if (comparison) print(comparison_text(*comparison, style));
  if (!wanted.trace.empty()) {
    const char* viewer =
        observe::is_perfetto_name(wanted.trace) ? "Perfetto" : "chrome://tracing or Perfetto";
    print(fmt::format("\n{} holds {} rank{}, for {}\n", wanted.trace, options.traced_ranks.size(),
                      options.traced_ranks.size() == 1 ? "" : "s", viewer));
  }
  return exit_ok;
}

}  // namespace lockstep::cli
