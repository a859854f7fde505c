#include "parallel/program.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <map>
#include <random>

#include "base/error.hpp"
#include "drawn_run.hpp"
#include "parallel/live_bytes.hpp"
#include "parallel/program_check.hpp"
#include "sample_run.hpp"

namespace lockstep::parallel {
namespace {

using config::ScheduleKind;

config::RunFile run_for(ScheduleKind kind, int p, int v, int m) {
  config::RunFile run = tests::sample_run(1, p, 1, v, m);
  run.model.layers = p * v;
  run.parallel.schedule = kind;
  return run;
}

TEST(Program, AllSchedulesPassTheCheckWithBlockingSends) {
  for (const ScheduleKind kind : {ScheduleKind::gpipe, ScheduleKind::one_f_one_b, ScheduleKind::interleaved,
                                  ScheduleKind::zero_bubble_h1}) {
    for (int p = 1; p <= 7; ++p) {
      for (int v = 1; v <= (kind == ScheduleKind::interleaved ? 4 : 1); ++v) {
        for (int m = 1; m <= 2 * p + 3; ++m) {
          const Layout layout(run_for(kind, p, v, m));
          const ProgramReport report = check_step_programs(layout, build_step_programs(layout));
          const Schedule schedule = layout.schedule();
          for (int r = 0; r < p; ++r)
            EXPECT_EQ(report.peak_live[static_cast<size_t>(r)], peak_live(schedule, r));
        }
      }
    }
  }
}

// The search for deadlocks: whatever is drawn, its programs end although every send blocks until it is
// received.
TEST(Program, NoDrawnLayoutDeadlocks) {
  std::mt19937 random(405);
  for (int i = 0; i < 3000; ++i) {
    const config::RunFile run = tests::draw_run(random);
    const Layout layout(run);
    ASSERT_NO_THROW(check_step_programs(layout, build_step_programs(layout))) << tests::describe(run);
  }
}

// Breaks every action of a drawn stage in turn, of drawn layouts; each is found.
void expect_found(uint32_t seed, const std::function<void(std::vector<Action>&, std::ptrdiff_t)>& break_at) {
  std::mt19937 random(seed);
  for (int i = 0; i < 60; ++i) {
    const config::RunFile run = tests::draw_run(random);
    const Layout layout(run);
    const auto programs = build_step_programs(layout);
    const size_t stage = random() % programs.size();
    for (size_t at = 0; at < programs[stage].actions.size(); ++at) {
      auto broken = programs;
      break_at(broken[stage].actions, static_cast<std::ptrdiff_t>(at));
      EXPECT_THROW(check_step_programs(layout, broken), RunError)
          << tests::describe(run) << ", stage " << stage << " " << describe(programs[stage].actions[at]);
    }
  }
}

TEST(Program, ARemovedActionIsFound) {
  expect_found(16,
               [](std::vector<Action>& actions, std::ptrdiff_t at) { actions.erase(actions.begin() + at); });
}

TEST(Program, ADoubledActionIsFound) {
  expect_found(1024, [](std::vector<Action>& actions, std::ptrdiff_t at) {
    actions.insert(actions.begin() + at, Action(actions[static_cast<size_t>(at)]));
  });
}

// What a step does once must come after what it uses: swapping any two neighbours of the step's tail, or
// putting a reduction before its last backward, is found.
TEST(Program, AnActionBeforeWhatItNeedsIsFound) {
  const Layout layout(run_for(ScheduleKind::interleaved, 2, 2, 2));
  const auto programs = build_step_programs(layout);
  const auto& actions = programs[0].actions;
  const auto at = [&](ActionKind kind, int chunk) {
    return static_cast<size_t>(
        std::find_if(actions.begin(), actions.end(),
                     [&](const Action& a) { return a.kind == kind && a.chunk == chunk; }) -
        actions.begin());
  };
  const size_t norm = at(ActionKind::gradient_norm, -1);
  const std::pair<size_t, size_t> swaps[] = {
      {0, at(ActionKind::forward, 0)},
      {at(ActionKind::reduce_gradients, 0), norm},
      {norm, at(ActionKind::optimizer_step, 0)},
      {at(ActionKind::optimizer_step, 1), at(ActionKind::gather_parameters, 1)},
      {at(ActionKind::backward, 1), at(ActionKind::reduce_gradients, 1)},
  };
  for (const auto& [first, second] : swaps) {
    ASSERT_LT(first, second);
    auto broken = programs;
    std::swap(broken[0].actions[first], broken[0].actions[second]);
    EXPECT_THROW(check_step_programs(layout, broken), RunError)
        << describe(actions[first]) << " and " << describe(actions[second]);
  }
}

// Two neighbours that send to each other before either receives: what 1F1B falls into when its messages stand
// right behind its passes.
TEST(Program, ACrossingOfBlockingSendsIsFound) {
  const Layout layout(run_for(ScheduleKind::one_f_one_b, 2, 1, 4));
  auto programs = build_step_programs(layout);
  auto& actions = programs[0].actions;
  // Stage 0 takes the gradient of micro-batch 0 only after it has sent hidden state 2, which stage 1 takes
  // later.
  const auto receive = std::find_if(actions.begin(), actions.end(),
                                    [](const Action& a) { return a.kind == ActionKind::receive_backward; });
  const Action moved = *receive;
  actions.erase(receive);
  const auto last_send = std::find_if(actions.rbegin(), actions.rend(),
                                      [](const Action& a) { return a.kind == ActionKind::send_forward; });
  actions.insert(last_send.base(), moved);
  EXPECT_THROW(check_step_programs(layout, programs), RunError);
}

std::map<std::string, int64_t> bytes_by_name(const Layout& layout, const Program& program) {
  std::map<std::string, int64_t> bytes;
  for (const Action& action : program.actions) {
    for (const model::Op& op : action_ops(layout, program.stage, action)) {
      EXPECT_GT(op.bytes, 0) << op.name;
      bytes[std::string(op.name)] += op.bytes;
    }
  }
  return bytes;
}

TEST(Program, OneWorkerTalksToNobody) {
  const Layout alone(tests::sample_run(1, 1, 1, 1, 2));
  const auto programs = build_step_programs(alone);
  for (const Action& action : programs[0].actions) {
    for (const model::Op& op : action_ops(alone, 0, action)) EXPECT_EQ(op.axis, Axis::none) << op.name;
  }
}

// What crosses dp x cp in a step, by ZeRO stage (Rajbhandari et al., arXiv:1910.02054, section 7): gradients
// once, and once more the gradients (0), the parameters (1, 2), or the parameters as often as they are
// gathered (3); with a scatter at every micro-batch the gradients that often.
TEST(Program, TrafficOfEveryZeroStage) {
  for (const int64_t zero : {0, 1, 2, 3}) {
    for (const auto scatter : {config::GradientScatter::chunk, config::GradientScatter::micro_batch}) {
      if (zero < 2 && scatter == config::GradientScatter::micro_batch) continue;
      config::RunFile run = tests::sample_run(1, 1, 4, 1, 6);
      run.parallel.zero = zero;
      run.parallel.gradient_scatter = scatter;
      const Layout layout(run);
      auto bytes = bytes_by_name(layout, build_step_programs(layout)[0]);
      const int64_t elements = layout.padded_chunk_elements(0, 0);
      const int64_t scatters = scatter == config::GradientScatter::micro_batch ? 6 : 1;
      EXPECT_EQ(bytes["gradient_reduce_scatter"], scatters * 4 * elements);
      EXPECT_EQ(bytes["gradient_all_gather"], zero == 0 ? 4 * elements : 0);
      EXPECT_EQ(bytes["parameter_all_gather"], zero == 0 ? 0 : 2 * elements);
      EXPECT_EQ(bytes["adamw"], layout.state_elements(0, 0) * (4 + 6 * 4 + 2));
      EXPECT_EQ(layout.state_elements(0, 0), zero == 0 ? elements : elements / 4);
    }
  }
}

int count_of(const Program& program, ActionKind kind) {
  return static_cast<int>(std::count_if(program.actions.begin(), program.actions.end(),
                                        [&](const Action& a) { return a.kind == kind; }));
}

// zero = 3: with reshard_after_forward parameters are gathered for forward and for backward, but for the last
// chunk, whose backward follows at once.
TEST(Program, ParametersAreGatheredAheadAndFreed) {
  config::RunFile run = tests::sample_run(1, 1, 2, 4, 3);
  run.parallel.zero = 3;
  run.parallel.schedule = ScheduleKind::interleaved;
  for (const bool reshard : {false, true}) {
    run.parallel.reshard_after_forward = reshard;
    const Layout layout(run);
    const Program program = build_step_programs(layout)[0];
    // Each of three micro-batches passes chunks 0 1 2 3 3 2 1 0. Chunk 3 stays for its backward, chunk 0 from
    // one micro-batch to the next; 1 and 2 are gathered for each pass.
    EXPECT_EQ(count_of(program, ActionKind::unshard), reshard ? 4 + 6 + 6 + 3 : 4) << reshard;
    EXPECT_EQ(count_of(program, ActionKind::reshard), count_of(program, ActionKind::unshard));
    // Every unshard after the first stands before a pass of another chunk: it has that pass to hide behind.
    for (size_t i = 2; i + 1 < program.actions.size(); ++i) {
      if (program.actions[i].kind != ActionKind::unshard) continue;
      size_t next = i;
      while (!is_pass(program.actions[next].kind)) ++next;
      EXPECT_NE(program.actions[next].chunk, program.actions[i].chunk) << i;
    }
  }
}

TEST(Program, EveryLogicalReplicaIsReducedByItself) {
  config::RunFile run = tests::sample_run(1, 2, 2, 1, 3);
  run.parallel.replicas = 5;
  run.train.global_batch = 5 * 3;
  const Layout layout(run);
  EXPECT_EQ(layout.micro_batches(), 3 * 3) << "three rounds, the last one not on all replicas";
  for (const Program& program : build_step_programs(layout)) {
    std::vector<int> last;
    for (const Action& action : program.actions) {
      if (action.kind == ActionKind::reduce_gradients) last.push_back(action.micro_batch);
    }
    EXPECT_EQ(last, (std::vector<int>{2, 5, 8}));
  }
}

TEST(Program, ATiedEmbeddingIsSummedBetweenTheEnds) {
  config::RunFile run = tests::sample_run(2, 3, 2, 1, 2);
  run.model.layers = 9;
  run.model.tie_embeddings = true;
  for (const int64_t zero : {0, 1, 2, 3}) {
    run.parallel.zero = zero;
    const Layout layout(run);
    const auto programs = build_step_programs(layout);
    const int64_t matrix = 4 * run.model.vocab * run.model.hidden / 2;
    for (const int stage : {0, 1, 2}) {
      auto bytes = bytes_by_name(layout, programs[static_cast<size_t>(stage)]);
      EXPECT_EQ(bytes["tied_gradient_all_reduce"], stage == 1 ? 0 : zero == 0 ? matrix : matrix / 2);
    }
  }
}

TEST(Program, TheRun405BHasThousandsOfOpsARank) {
  const Layout layout(tests::llama3_405b());
  const auto programs = build_step_programs(layout);
  EXPECT_NO_THROW(check_step_programs(layout, programs));
  for (const Program& program : programs) {
    size_t ops = 0;
    for (const Action& action : program.actions) ops += action_ops(layout, program.stage, action).size();
    EXPECT_GE(ops, 3000u);
  }
}

// Walks live bytes action by action; here against a count of what is live times what one holds.
TEST(Program, LiveActivationsFollowTheSchedule) {
  for (const ScheduleKind kind :
       {ScheduleKind::gpipe, ScheduleKind::one_f_one_b, ScheduleKind::interleaved}) {
    const int v = kind == ScheduleKind::interleaved ? 2 : 1;
    const Layout layout(run_for(kind, 4, v, 8));
    const auto programs = build_step_programs(layout);
    // Stage 1 of 4 has neither embedding nor output: all its chunks hold the same.
    const int64_t each = model::layer_activation_bytes(layout.shape(), {});
    EXPECT_EQ(peak_activation_bytes(layout, programs[1]), peak_live(layout.schedule(), 1) * each);
  }
}

// The halves: what waits for its weight gradients holds the stash alone.
TEST(Program, ASplitBackwardLeavesItsStash) {
  const Layout layout(run_for(ScheduleKind::zero_bubble_h1, 4, 1, 8));
  LiveActivations live(layout, 1);
  const int64_t kept = model::layer_activation_bytes(layout.shape(), {});
  const int64_t stash = model::layer_stash_bytes(layout.shape(), {});
  live.take({ActionKind::forward, 0, 0});
  live.take({ActionKind::forward, 0, 1});
  live.take({ActionKind::backward_input, 0, 0});
  EXPECT_EQ(live.bytes(), kept + stash);
  live.take({ActionKind::backward_weight, 0, 0});
  EXPECT_EQ(live.bytes(), kept);
  EXPECT_EQ(live.peak(), std::max(2 * kept, kept + stash));
}

TEST(Program, EvaluationRunsForwardOnly) {
  const Layout layout(tests::sample_run(1, 2, 1, 2, 4));
  for (const Program& program : build_evaluation_programs(layout, 5)) {
    int forwards = 0;
    for (const Action& action : program.actions) {
      EXPECT_NE(action.kind, ActionKind::backward);
      EXPECT_NE(action.kind, ActionKind::optimizer_step);
      forwards += action.kind == ActionKind::forward ? 1 : 0;
    }
    EXPECT_EQ(forwards, 2 * 5);
    EXPECT_EQ(program.actions.back().kind, ActionKind::evaluation_loss);
  }
}

// Software that does not overlap reductions has them after the rank's last backward; one that overlaps the
// gathers of parameters begins with them.
TEST(Program, OverlapIsTheSoftwares) {
  for (const int zero : {0, 1}) {
    config::RunFile run = tests::sample_run(2, 2, 2, 2, 4);
    run.parallel.zero = zero;
    const auto count_before = [](const Program& program, ActionKind what, auto border) {
      const auto at = std::find_if(program.actions.begin(), program.actions.end(), border);
      return std::count_if(program.actions.begin(), at, [&](const Action& a) { return a.kind == what; });
    };
    const auto ends = [](const Action& a) { return a.kind == ActionKind::gradient_norm; };
    for (const bool overlap : {true, false}) {
      run.software.overlap_gradients = overlap;
      run.software.overlap_parameters = !overlap;
      const Layout layout(run);
      const std::vector<Program> programs = build_step_programs(layout);
      EXPECT_NO_THROW(check_step_programs(layout, programs));
      for (const Program& program : programs) {
        int backwards = 0;
        const auto last_backward = [&](const Action& a) {
          return a.kind == ActionKind::backward && ++backwards == 8;
        };
        EXPECT_EQ(count_before(program, ActionKind::reduce_gradients, ends), 2);
        EXPECT_EQ(count_before(program, ActionKind::reduce_gradients, last_backward), overlap ? 1 : 0);
        const bool at_start = zero == 1 && !overlap, at_end = zero == 1 && overlap;
        const auto pass = [](const Action& a) { return is_pass(a.kind) || is_receive(a.kind); };
        EXPECT_EQ(count_before(program, ActionKind::unshard, pass), at_start ? 2 : 0);
        const auto never = [](const Action&) { return false; };
        EXPECT_EQ(count_before(program, ActionKind::gather_parameters, never), at_end ? 2 : 0);
      }
    }
  }
}

}  // namespace
}  // namespace lockstep::parallel
