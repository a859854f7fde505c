// lockstep simulate RUN.toml
#include <fmt/format.h>
#include <unistd.h>

#include <cstdio>
#include <optional>
#include <thread>
#include <utility>

#include "base/error.hpp"
#include "base/json.hpp"
#include "base/units.hpp"
#include "cli/against.hpp"
#include "cli/commands.hpp"
#include "cli/flags.hpp"
#include "cli/long_work.hpp"
#include "cli/modelled_run.hpp"
#include "cli/output.hpp"
#include "cli/output_place.hpp"
#include "cli/prediction.hpp"
#include "cli/trace_size.hpp"
#include "observe/trace_writer.hpp"
#include "plan/memory.hpp"
#include "plan/memory_text.hpp"
#include "plan/report.hpp"
#include "sim/report.hpp"
#include "sim/several_steps.hpp"
#include "sim/transfer_list.hpp"
#include "sim/why.hpp"

namespace lockstep::cli {

namespace {

struct Wanted {
  std::string file, cluster, against;  // the last two: empty when not given
  std::vector<std::string> overrides;
  std::string trace;               // file; empty: none
  std::vector<NumberRange> ranks;  // in the trace; empty: one of every pipeline stage
  int64_t steps = 1;
  std::optional<int64_t> seed;
  int64_t threads = std::max(1u, std::thread::hardware_concurrency());
  bool json = false, why = false;
};

std::vector<int> traced_ranks(const Wanted& wanted, const parallel::Layout& layout) {
  std::vector<int> out;
  if (wanted.trace.empty()) {
    if (!wanted.ranks.empty()) throw UsageError("--ranks says what the trace holds: give --trace FILE too");
    return out;
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

struct Simulated {
  sim::SharedStep shared;  // means over the steps
  std::vector<double> seconds;
  std::optional<sim::Why> why;
  std::vector<sim::ListedTransfer> transfers;
};

Simulated simulate_steps(const parallel::Layout& layout, const std::vector<parallel::Program>& programs,
                         sim::StepOptions options, const Wanted& wanted) {
  Simulated out;
  sim::SeveralSteps all;
  LongWork work("simulate", stderr, observe::detect_terminal(STDERR_FILENO));
  const double share = 1.0 / static_cast<double>(wanted.steps);
  out.shared.stretch = 0;
  for (options.step = 0; options.step < wanted.steps; ++options.step) {
    sim::SharedStep shared = sim::simulate_shared_step(layout, programs, options);
    if (wanted.why && options.step == 0) out.why = sim::explain(layout, programs, options, shared.step);
    out.shared.stretch += share * shared.stretch;
    out.shared.core_waits.add(shared.core_waits, share);
    all.add(std::move(shared.step));
    work.update(options.step + 1, wanted.steps);
  }
  work.finish();
  out.shared.step = all.summary();
  out.seconds = all.seconds();
  out.transfers = sim::list_transfers(layout, programs, options.network->prices());
  return out;
}

void print_json_report(const config::RunFile& run, const Simulated& simulated, const Json& memory,
                       const std::optional<Comparison>& comparison) {
  Json document = sim::simulate_json(run, simulated.shared.step, simulated.seconds, memory);
  document["transfers"] = sim::transfers_json(simulated.transfers);
  if (simulated.why) document["why"] = sim::why_json(*simulated.why);
  if (comparison) document["against"] = comparison_json(*comparison);
  print_json(document);
}

std::string trace_line(const std::string& trace, size_t ranks) {
  const char* viewer = observe::is_perfetto_name(trace) ? "Perfetto" : "chrome://tracing or Perfetto";
  return fmt::format("\n{} holds {} rank{}, for {}\n", trace, ranks, ranks == 1 ? "" : "s", viewer);
}

}  // namespace

int simulate(const Arguments& arguments) {
  Wanted wanted;
  Flags flags("simulate",
              "lockstep simulate configs/llama3-405b-16k.toml --steps 3 --trace step.json --ranks 0-7,128");
  flags.required(wanted.file, "RUN.toml", "the run file")
      .list(wanted.overrides, "--set", "TABLE.KEY=VALUE", "overrides a key of the run file")
      .text(wanted.cluster, "--cluster", "FILE", "the cluster's figures, as `lockstep calibrate` writes them")
      .text(wanted.against, "--against", "RUN_FOLDER",
            "sets the step beside those of a real run of the same layout")
      .number(wanted.steps, "--steps", "N", "steps to simulate; figures are their means", {1, 1'000'000})
      .number(wanted.seed, "--seed", "S", "simulate.seed in place of the run file's", {0})
      .number(wanted.threads, "--threads", "N",
              "to simulate with; the result is the same. Otherwise all cores' worth", {1, 1024})
      .text(wanted.trace, "--trace", "FILE",
            "writes the steps as a trace: Perfetto's format for FILE.pftrace, else Chrome's (JSON)")
      .ranges(wanted.ranks, "--ranks", "LIST",
              "ranks in the trace, such as 0-7,128; otherwise one of every pipeline stage",
              {0, std::numeric_limits<int>::max()})
      .toggle(
          wanted.why, "--why",
          "the critical path, what if parts of it were free, and who made others wait (of the first step)")
      .toggle(wanted.json, "--json", "one JSON document on standard output");
  if (!flags.parse(arguments)) return exit_ok;

  // Whatever can be refused is, before anything is simulated or written.
  if (wanted.seed) wanted.overrides.push_back(fmt::format("simulate.seed={}", *wanted.seed));
  const config::RunFile run = load_modelled_run(wanted.file, wanted.overrides, wanted.cluster);
  const parallel::Layout layout(run);
  sim::StepOptions options = sim::step_options(run.simulate);
  options.threads = static_cast<int>(wanted.threads);
  options.network = std::make_shared<sim::NetworkPrices>(layout, options);
  options.traced_ranks = traced_ranks(wanted, layout);
  const std::vector<parallel::Program> programs = checked_programs(layout);
  if (!wanted.trace.empty()) {
    check_trace_place(wanted.trace, {wanted.file, wanted.cluster}, wanted.against);
    check_trace_size(trace_size(layout, programs, options.traced_ranks, wanted.steps), wanted.trace);
  }
  std::optional<MeasuredRun> measured;
  if (!wanted.against.empty()) measured = read_measured_run(run, programs, wanted.against);

  const Simulated simulated = simulate_steps(layout, programs, options, wanted);
  const sim::StepResult& result = simulated.shared.step;
  std::optional<Comparison> comparison;
  if (measured) comparison = compare(run, programs, simulated.shared, *measured);
  if (!wanted.trace.empty()) sim::write_trace(wanted.trace, layout.mesh(), result.traces);
  const lockstep::plan::MemoryReport memory = lockstep::plan::memory_of(layout, programs);
  if (wanted.json) {
    print_json_report(run, simulated, memory_json(memory), comparison);
    return exit_ok;
  }
  const cost::Style style = text_style();
  print(sim::simulate_text(run, result, simulated.seconds, style) +
        sim::transfers_text(run, simulated.transfers, style) + memory_text(memory, style));
  if (simulated.why) {
    if (wanted.steps > 1) {
      print(fmt::format("\nThe rest is of the first step alone, {}.\n",
                        format_seconds(simulated.why->seconds)));
    }
    print(sim::why_text(layout.mesh(), *simulated.why, style));
  }
  if (comparison) print(comparison_text(*comparison, style));
  if (!wanted.trace.empty()) print(trace_line(wanted.trace, options.traced_ranks.size()));
  return exit_ok;
}

}  // namespace lockstep::cli
