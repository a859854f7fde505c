// The simulator's half of the one-program test: whatever a training program can have, an action that is taken
// out or put in a second time changes what is simulated, or is refused by name. Resharding alone costs no
// time and has no ops: plan's memory follows it (tests/plan).
#include <gtest/gtest.h>

#include <algorithm>
#include <map>

#include "base/error.hpp"
#include "parallel/drawn_run.hpp"
#include "sim/small_runs.hpp"

namespace lockstep::sim {
namespace {

using parallel::Action;
using parallel::ActionKind;
using namespace test;

// Two stages each; together they have every kind of action.
std::vector<config::RunFile> runs() {
  std::vector<config::RunFile> all(5, small_run(2, 2, 2, 1, 4));
  all[1].parallel.schedule = config::ScheduleKind::zero_bubble_h1;
  all[1].parallel.zero = 3;
  all[1].parallel.cp = 2;
  all[1].parallel.recompute = {"norm"};
  all[2] = small_run(2, 2, 2, 4, 4);
  all[2].parallel.zero = 3;
  all[2].parallel.cp = 2;
  all[2].parallel.gradient_scatter = config::GradientScatter::micro_batch;
  all[3].parallel.zero = 0;
  all[3].parallel.replicas = 4;
  all[3].train.global_batch = 8;
  all[3].model.tie_embeddings = true;
  all[4].parallel.schedule = config::ScheduleKind::gpipe;
  all[4].parallel.zero = 2;
  all[4].model.kv_heads = 1;
  all[4].data.document_mask = true;
  return all;
}

bool needs_another_stage(ActionKind kind) {
  return parallel::is_send(kind) || parallel::is_receive(kind) || kind == ActionKind::gradient_norm ||
         kind == ActionKind::sum_tied_gradients;
}

struct Counts {
  int ran = 0, changed_time = 0, refused = 0;
};

class Changed {
 public:
  explicit Changed(const config::RunFile& run)
      : layout_(run), programs_(parallel::build_step_programs(layout_)) {
    options_ = no_jitter();
    for (int stage = 0; stage < layout_.stages(); ++stage) {
      options_.traced_ranks.push_back(layout_.mesh().rank({0, 0, stage, 0}));
    }
    whole_ = simulate_step(layout_, programs_, options_);
  }

  // Every action of every stage, once without it and once with it twice.
  void check_all(std::map<ActionKind, Counts>& counts) const {
    for (const parallel::Program& program : programs_) {
      for (size_t i = 0; i < program.actions.size(); ++i) {
        const Action& action = program.actions[i];
        const size_t ops = parallel::action_ops(layout_, program.stage, action).size();
        if (ops == 0) continue;
        SCOPED_TRACE("stage " + std::to_string(program.stage) + ", " + parallel::describe(action));
        for (const int times : {0, 2}) {
          auto changed = programs_;
          auto& actions = changed[static_cast<size_t>(program.stage)].actions;
          const auto place = actions.erase(actions.begin() + static_cast<std::ptrdiff_t>(i));
          actions.insert(place, static_cast<size_t>(times), action);
          check(changed, program.stage, static_cast<int64_t>(ops) * (times - 1), counts[action.kind]);
        }
      }
    }
  }

 private:
  // `changed` has `more` ops a rank of `stage`.
  void check(const std::vector<parallel::Program>& changed, int stage, int64_t more, Counts& counts) const {
    try {
      const StepResult r = simulate_step(layout_, changed, options_);
      ++counts.ran;
      EXPECT_EQ(r.ops, whole_.ops + layout_.mesh().size() / layout_.stages() * more);
      for (size_t s = 0; s < r.traces.size(); ++s) {
        const int64_t added = static_cast<int>(s) == stage ? more : 0;
        EXPECT_EQ(std::ssize(r.traces[s].spans), std::ssize(whole_.traces[s].spans) + added);
      }
      if (r.split.values() != whole_.split.values()) ++counts.changed_time;
    } catch (const RunError& error) {
      ++counts.refused;
      EXPECT_NE(std::string(error.what()).find("stage "), std::string::npos) << error.what();
    }
  }

  parallel::Layout layout_;
  std::vector<parallel::Program> programs_;
  StepOptions options_;
  StepResult whole_;
};

TEST(ChangedProgram, IsSimulatedOtherwiseOrRefused) {
  std::map<ActionKind, Counts> counts;
  for (const config::RunFile& run : runs()) {
    SCOPED_TRACE(tests::describe(run));
    Changed(run).check_all(counts);
  }
  for (int k = 0; k <= static_cast<int>(ActionKind::evaluation_loss); ++k) {
    const auto kind = static_cast<ActionKind>(k);
    SCOPED_TRACE(parallel::to_string(kind));
    const Counts& c = counts[kind];
    if (kind == ActionKind::reshard || kind == ActionKind::evaluation_loss) {
      EXPECT_EQ(c.ran + c.refused, 0);  // nothing to simulate; not of a training program
    } else if (needs_another_stage(kind)) {
      // A message with one end missing or doubled, a meeting that one stage does not come to.
      EXPECT_EQ(c.ran, 0);
      EXPECT_GT(c.refused, 0);
    } else {
      EXPECT_EQ(c.refused, 0);
      EXPECT_GT(c.changed_time, 0);
      // What goes on beside the computation may be hidden behind it; all else takes its time.
      const bool beside = kind == ActionKind::unshard || kind == ActionKind::reduce_gradients ||
                          kind == ActionKind::gather_parameters;
      if (!beside) {
        EXPECT_EQ(c.changed_time, c.ran);
      }
    }
  }
}

}  // namespace
}  // namespace lockstep::sim
