#include "parallel/program.hpp"

#include <gtest/gtest.h>

#include <algorithm>

#include "base/error.hpp"
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
  for (const ScheduleKind kind :
       {ScheduleKind::gpipe, ScheduleKind::one_f_one_b, ScheduleKind::interleaved}) {
    for (int p = kind == ScheduleKind::interleaved ? 2 : 1; p <= 7; ++p) {
      for (int v = 1; v <= (kind == ScheduleKind::interleaved ? 4 : 1); ++v) {
        for (int m = 1; m <= 2 * p + 3; ++m) {
          const Layout layout(run_for(kind, p, v, m));
          const auto programs = build_step_programs(layout);
          const ProgramReport report = check_step_programs(programs, v, m);
          const Schedule schedule = layout.schedule();
          for (int r = 0; r < p; ++r)
            EXPECT_EQ(report.peak_live[static_cast<size_t>(r)], peak_live(schedule, r));
        }
      }
    }
  }
}

TEST(Program, ARemovedActionIsFound) {
  const Layout layout(run_for(ScheduleKind::interleaved, 3, 2, 4));
  const auto programs = build_step_programs(layout);
  for (size_t stage = 0; stage < programs.size(); ++stage) {
    for (size_t i = 0; i < programs[stage].actions.size(); ++i) {
      auto broken = programs;
      broken[stage].actions.erase(broken[stage].actions.begin() + static_cast<std::ptrdiff_t>(i));
      EXPECT_THROW(check_step_programs(broken, 2, 4), RunError)
          << stage << " " << describe(programs[stage].actions[i]);
    }
  }
}

TEST(Program, ADoubledActionIsFound) {
  const Layout layout(run_for(ScheduleKind::one_f_one_b, 3, 1, 4));
  const auto programs = build_step_programs(layout);
  for (size_t stage = 0; stage < programs.size(); ++stage) {
    for (size_t i = 0; i < programs[stage].actions.size(); ++i) {
      auto broken = programs;
      auto& actions = broken[stage].actions;
      actions.insert(actions.begin() + static_cast<std::ptrdiff_t>(i), Action(actions[i]));
      EXPECT_THROW(check_step_programs(broken, 1, 4), RunError) << stage << " " << describe(actions[i]);
    }
  }
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
    EXPECT_THROW(check_step_programs(broken, 2, 2), RunError)
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
  EXPECT_THROW(check_step_programs(programs, 1, 4), RunError);
}

TEST(Program, OpsFollowTheLayout) {
  const Layout alone(tests::sample_run(1, 1, 1, 1, 2));
  const auto programs_alone = build_step_programs(alone);
  for (const Action& action : programs_alone[0].actions) {
    for (const model::Op& op : action_ops(alone, 0, action)) {
      EXPECT_EQ(op.axis, Axis::none) << op.name << ": one worker has nobody to talk to";
    }
  }
  const Layout many(tests::sample_run(2, 2, 2, 2, 4));
  int64_t scattered = 0;
  for (const Program& program : build_step_programs(many)) {
    for (const Action& action : program.actions) {
      for (const model::Op& op : action_ops(many, program.stage, action)) {
        EXPECT_GT(op.bytes, 0) << op.name;
        if (op.name == "gradient_reduce_scatter") scattered += op.bytes / 4;
      }
    }
  }
  // Every parameter's gradient crosses dp once: half of it on each of two tensor-parallel ranks, norms on
  // both.
  const auto& model = many.run().model;
  const int64_t norms = model.hidden * (2 * model.layers + 1);
  EXPECT_EQ(scattered, (model::parameter_count(model) - norms) / 2 + norms);
}

TEST(Program, TheRun405BHasThousandsOfOpsARank) {
  const Layout layout(tests::llama3_405b());
  const auto programs = build_step_programs(layout);
  EXPECT_NO_THROW(check_step_programs(programs, 8, 16));
  for (const Program& program : programs) {
    size_t ops = 0;
    for (const Action& action : program.actions) ops += action_ops(layout, program.stage, action).size();
    EXPECT_GE(ops, 3000u);
  }
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

}  // namespace
}  // namespace lockstep::parallel
