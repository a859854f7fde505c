#include "sim/report.hpp"

#include <gtest/gtest.h>

#include <array>
#include <map>
#include <sstream>

#include "base/json.hpp"
#include "base/units.hpp"
#include "observe/shown_trace.hpp"
#include "observe/temporary_folder.hpp"
#include "sim/drawn_layouts.hpp"
#include "sim/several_steps.hpp"

namespace lockstep::sim {
namespace {

config::RunFile small_run() {
  config::RunFile run = tests::sample_run(2, 2, 2, 2, 4);
  run.cluster = tests::small_cluster(8, 64);
  return run;
}

std::vector<StepResult> simulate(const config::RunFile& run, int steps, const std::vector<int>& traced) {
  const parallel::Layout layout(run);
  const auto programs = parallel::build_step_programs(layout);
  StepOptions options = step_options(run.simulate);
  options.traced_ranks = traced;
  std::vector<StepResult> results;
  for (options.step = 0; options.step < steps; ++options.step) {
    results.push_back(simulate_step(layout, programs, options));
  }
  return results;
}

StepResult summary_of(const std::vector<StepResult>& steps) {
  SeveralSteps all;
  for (const StepResult& step : steps) all.add(step);
  return all.summary();
}

TEST(SeveralSteps, TheyDifferAndTheSummaryIsTheirMean) {
  const auto steps = simulate(small_run(), 3, {});
  ASSERT_EQ(steps.size(), 3u);
  EXPECT_NE(steps[0].seconds, steps[1].seconds);
  const StepResult sum = summary_of(steps);
  EXPECT_DOUBLE_EQ(sum.seconds, (steps[0].seconds + steps[1].seconds + steps[2].seconds) / 3);
  EXPECT_NEAR(sum.split.total(), sum.seconds, 1e-9 * sum.seconds);
  EXPECT_EQ(sum.ops, 3 * steps[0].ops);
  EXPECT_EQ(sum.ranks, 8);
  EXPECT_EQ(sum.bubble_fraction, steps[0].bubble_fraction);
  for (size_t r = 0; r < sum.finish_seconds.size(); ++r) {
    const auto mean = [&](auto figure) {
      return (figure(steps[0]) + figure(steps[1]) + figure(steps[2])) / 3;
    };
    EXPECT_DOUBLE_EQ(sum.finish_seconds[r], mean([&](const auto& s) { return s.finish_seconds[r]; }));
    EXPECT_DOUBLE_EQ(sum.kernel_seconds[r], mean([&](const auto& s) { return s.kernel_seconds[r]; }));
    EXPECT_DOUBLE_EQ(sum.behind_seconds[r], mean([&](const auto& s) { return s.behind_seconds[r]; }));
    EXPECT_LE(sum.behind_seconds[r], sum.behind_seconds[static_cast<size_t>(sum.slowest_rank)]);
  }
  EXPECT_THROW(SeveralSteps().summary(), std::invalid_argument);
}

TEST(SeveralSteps, OneIsItselfToTheBit) {
  const StepResult step = simulate(small_run(), 1, {3}).front();
  const StepResult sum = summary_of({step});
  EXPECT_EQ(sum.seconds, step.seconds);
  EXPECT_EQ(sum.split.values(), step.split.values());
  EXPECT_EQ(sum.finish_seconds, step.finish_seconds);
  EXPECT_EQ(sum.slowest_rank, step.slowest_rank);
  EXPECT_EQ(sum.traces[0].spans.size(), step.traces[0].spans.size());
}

// Context parallel with copied KV heads, parameters gathered, gradients scattered every micro-batch.
config::RunFile run_with_everything() {
  config::RunFile run = small_run();
  run.parallel.cp = 2;
  run.parallel.dp = 1;
  run.parallel.replicas = 2;
  run.parallel.zero = 3;
  run.parallel.gradient_scatter = config::GradientScatter::micro_batch;
  run.model.kv_heads = 1;
  run.model.tie_embeddings = true;
  run.train.sequence = 32;
  run.train.global_batch = 8;
  return run;
}

// The spans of a rank are its program: every op once a step, one after another on every stream.
void expect_spans_of_program(const config::RunFile& run) {
  const parallel::Layout layout(run);
  const auto programs = parallel::build_step_programs(layout);
  const StepResult sum = summary_of(simulate(run, 2, {6, 1}));
  ASSERT_EQ(sum.traces.size(), 2u);
  for (const observe::SpanFile& file : sum.traces) {
    const int stage = layout.mesh().coordinates(file.rank).pp;
    std::map<std::string, int> expected, seen;
    std::map<std::pair<std::string, int64_t>, int> bytes_expected, bytes_seen;
    for (const auto& action : programs[static_cast<size_t>(stage)].actions) {
      for (const model::Op& op : parallel::action_ops(layout, stage, action)) {
        expected[std::string(op.name)] += 2;
        if (op.axis != model::Axis::none) bytes_expected[{std::string(op.name), op.bytes}] += 2;
      }
    }
    std::array<int64_t, observe::stream_count> busy_until{};
    for (const observe::Span& span : file.spans) {
      const std::string& name = file.names.at(span.name);
      ++seen[name];
      if (span.bytes > 0) ++bytes_seen[{name, span.bytes}];
      EXPECT_LE(span.start_ns, span.end_ns);
      int64_t& until = busy_until[static_cast<size_t>(span.stream)];
      // Received messages are moments; everything else on a stream goes one after another.
      if (span.message_end != observe::MessageEnd::received) {
        EXPECT_GE(span.start_ns, until - 1) << name;
        until = span.end_ns;
      }
    }
    EXPECT_EQ(seen, expected);
    EXPECT_EQ(bytes_seen, bytes_expected);
    EXPECT_EQ(file.dropped, 0);
  }
  EXPECT_EQ(sum.traces[0].rank, 1);
  EXPECT_EQ(sum.traces[1].rank, 6);
}

TEST(SeveralSteps, TracedSpansAreTheProgramsOps) {
  expect_spans_of_program(small_run());
  expect_spans_of_program(run_with_everything());
}

TEST(SeveralSteps, ContextParallelSpansHaveTheirStreamAndMeetInTheirGroup) {
  const config::RunFile run = run_with_everything();
  const StepResult r = summary_of(simulate(run, 1, {0, 2}));  // tp 0, cp 0 and 1 of stage 0
  std::array<std::vector<int64_t>, 2> ends;
  for (size_t i = 0; i < 2; ++i) {
    for (const observe::Span& span : r.traces[i].spans) {
      if (span.stream == observe::Stream::cp) ends[i].push_back(span.end_ns);
    }
  }
  EXPECT_GT(ends[0].size(), 0u);
  EXPECT_EQ(ends[0], ends[1]);
  EXPECT_GT(r.split.cp, 0);
}

// Parameters are gathered beside the computation, and there before the pass that needs them.
TEST(SeveralSteps, PassesWaitForTheirParameters) {
  const config::RunFile run = run_with_everything();
  const StepResult r = summary_of(simulate(run, 1, {5}));
  std::map<int, int64_t> gathered;  // by chunk
  int64_t last_computed = 0;
  int beside = 0, passes = 0;
  for (const observe::Span& span : r.traces[0].spans) {
    const std::string& name = r.traces[0].names.at(span.name);
    if (name == "parameter_all_gather") {
      gathered[span.chunk] = span.end_ns;
      beside += span.start_ns < last_computed ? 1 : 0;
    } else if (span.stream == observe::Stream::compute && span.chunk >= 0 && span.micro_batch >= 0) {
      ASSERT_TRUE(gathered.contains(span.chunk)) << name;
      EXPECT_GE(span.start_ns, gathered[span.chunk] - 1) << name;
      last_computed = std::max(last_computed, span.end_ns);
      ++passes;
    }
  }
  EXPECT_GT(passes, 0);
  EXPECT_GT(beside, 0);
}

TEST(SeveralSteps, BothEndsOfAMessageCarryItsId) {
  const StepResult r = summary_of(simulate(small_run(), 1, {0, 2}));  // neighbours in the pipeline
  std::map<uint64_t, int> sent, received;
  for (const auto& file : r.traces) {
    for (const observe::Span& span : file.spans) {
      if (span.message_end == observe::MessageEnd::sent) ++sent[span.message];
      if (span.message_end == observe::MessageEnd::received) ++received[span.message];
    }
  }
  EXPECT_EQ(sent, received);
  // Two chunks a stage: four micro-batches cross three borders, both ways.
  EXPECT_EQ(sent.size(), 4u * 3 * 2);
}

TEST(SimulateReport, JsonHasTheNamesOfTheInterface) {
  const config::RunFile run = small_run();
  const auto steps = simulate(run, 2, {});
  Json memory;
  memory["fits"] = true;
  const Json json = simulate_json(run, steps[0], {steps[0].seconds}, memory);
  std::vector<std::string> names;
  for (const auto& [name, value] : json.items()) names.push_back(name);
  EXPECT_EQ(names, (std::vector<std::string>{"layout", "model", "memory", "step", "power", "ranks", "ops",
                                             "wall_seconds", "slowest_rank", "seconds_p50", "seconds_p99",
                                             "phases"}));
  EXPECT_EQ(json["step"]["seconds"], steps[0].seconds);
  EXPECT_EQ(json["memory"]["fits"], true);
  std::vector<std::string> phases;
  for (const Json& phase : json["phases"]) phases.push_back(phase["name"]);
  EXPECT_EQ(phases, (std::vector<std::string>{"data", "forward", "backward", "optimizer", "barrier"}));
}

TEST(SimulateReport, TextIsTheSameButForColour) {
  const config::RunFile run = small_run();
  const auto steps = simulate(run, 2, {});
  const std::vector<double> seconds = {steps[0].seconds, steps[1].seconds};
  const std::string plain = simulate_text(run, steps[0], seconds, {});
  std::string coloured = simulate_text(run, steps[0], seconds, {true});
  EXPECT_EQ(plain.find('\x1b'), std::string::npos);
  EXPECT_NE(coloured, plain);
  for (size_t at; (at = coloured.find('\x1b')) != std::string::npos;) {
    coloured.erase(at, coloured.find('m', at) - at + 1);
  }
  EXPECT_EQ(coloured, plain);
  for (const char* part :
       {"compute", "bubble", "optimizer", "barrier", "Phases", "Busiest", "Mean of 2 steps"}) {
    EXPECT_NE(plain.find(part), std::string::npos) << part;
  }
}

TEST(SimulateReport, ColumnsHaveNamesAndWaitsArePrintedAsSuch) {
  const config::RunFile run = small_run();
  const StepResult r = simulate(run, 1, {}).front();
  const std::string text = simulate_text(run, r, {r.seconds}, {});
  std::istringstream under_phases(text.substr(text.find("they overlap.") + 13));
  std::vector<std::string> columns(3);
  for (std::string& column : columns) under_phases >> column;
  EXPECT_EQ(columns, (std::vector<std::string>{"phase", "start", "end"})) << text;
  EXPECT_NE(text.find("of the step\n"), std::string::npos) << text;
  // Ends of ranks differ in digits that the step's three figures do not show.
  EXPECT_NE(text.find("done " + format_seconds(r.seconds - r.seconds_p50) + " or more before"),
            std::string::npos)
      << text;
}

// Both formats, read back: the ranks' names, every span, and arrows from sends to receives between the two.
void expect_trace(const config::RunFile& run, const std::vector<int>& ranks, const std::string& name,
                  size_t arrows) {
  const StepResult r = summary_of(simulate(run, 2, ranks));
  const lockstep::testing::TemporaryFolder folder;
  write_trace(folder / "t.json", parallel::Mesh(run), r.traces);
  write_trace(folder / "t.pftrace", parallel::Mesh(run), r.traces);
  const auto trace = lockstep::testing::read_perfetto(lockstep::testing::read_text(folder / "t.pftrace"));
  EXPECT_EQ(trace, lockstep::testing::read_chrome(lockstep::testing::read_text(folder / "t.json")));
  EXPECT_EQ(trace.slices.size(), r.traces[0].spans.size() + r.traces[1].spans.size());
  EXPECT_EQ(trace.processes.at(ranks[1] + 1).first, name);
  std::map<uint64_t, const lockstep::testing::ShownSlice*> sent;
  for (const auto& slice : trace.slices) {
    if (!slice.leaves) continue;
    EXPECT_TRUE(sent.emplace(*slice.leaves, &slice).second) << "an id is used twice";
  }
  size_t joined = 0;
  for (const auto& slice : trace.slices) {
    if (!slice.arrives || !sent.contains(*slice.arrives)) continue;
    const auto& from = *sent[*slice.arrives];
    ++joined;
    EXPECT_NE(from.pid, slice.pid);
    EXPECT_LT(from.start_ns, slice.end_ns) << "an arrow points forward in time";
    EXPECT_EQ(from.arguments.at("step"), slice.arguments.at("step"));
    EXPECT_EQ(from.arguments.at("micro_batch"), slice.arguments.at("micro_batch"));
    EXPECT_EQ(from.arguments.at("bytes"), slice.arguments.at("bytes"));
  }
  EXPECT_EQ(joined, arrows);
}

TEST(SimulateReport, BothTraceFormatsShowTheSpansOfEveryRank) {
  // Two steps of four micro-batches over three borders between chunks, both ways.
  expect_trace(small_run(), {0, 2}, "rank 2  tp0 pp1 dp0", 2 * 4 * 3 * 2);
  expect_trace(run_with_everything(), {0, 2}, "rank 2  tp0 cp1 pp0 dp0", 0);
}

}  // namespace
}  // namespace lockstep::sim
