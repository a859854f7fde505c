// One program: what a real run executed is what the program says, by name, order per stream and bytes; and a
// changed program changes what is executed.
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <random>

#include "train/harness.hpp"

namespace lockstep::tests {
namespace {

using parallel::ActionKind;

struct NamedBytes {
  std::string name;
  int64_t bytes;
  bool operator==(const NamedBytes&) const = default;
};
std::ostream& operator<<(std::ostream& out, const NamedBytes& op) {
  return out << op.name << " " << op.bytes;
}

using ByStream = std::map<std::string, std::vector<NamedBytes>>;

ByStream recorded(const RankOps& rank) {
  ByStream streams;
  for (const nn::OpRecord& op : rank.ops) {
    streams[std::string(observe::stream_name(op.stream))].push_back({std::string(op.name), op.bytes});
  }
  return streams;
}

ByStream programmed(const parallel::Layout& layout, const parallel::Program& program) {
  ByStream streams;
  for (const parallel::Action& action : program.actions) {
    for (const model::Op& op : parallel::action_ops(layout, program.stage, action)) {
      streams[std::string(observe::stream_name(op.stream))].push_back({std::string(op.name), op.bytes});
    }
  }
  return streams;
}

// Draws a layout that this job allows.
LayoutChoice draw(std::mt19937& random) {
  const auto pick = [&](std::initializer_list<int64_t> values) {
    return *(values.begin() +
             std::uniform_int_distribution<int>(0, static_cast<int>(values.size()) - 1)(random));
  };
  LayoutChoice c;
  do {
    c = {pick({1, 2, 4}),
         pick({1, 2, 4}),
         pick({1, 2}),
         1,
         pick({0, 1}) == 1,
         config::ScheduleKind::one_f_one_b,
         pick({1, 2, 4}),
         0,
         0};
    c.schedule = pick({0, 1}) == 1 ? config::ScheduleKind::gpipe : config::ScheduleKind::one_f_one_b;
    if (c.pp == 2 && pick({0, 1}) == 1) {
      c.virtual_stages = 2;
      c.schedule = config::ScheduleKind::interleaved;
    } else if (pick({0, 1}) == 1) {  // 4 layers on 3 stages: two each, one taken from both ends
      c.pp = 3;
      c.first_stage_less_layers = c.last_stage_less_layers = 1;
    }
  } while (c.tp * c.pp * c.dp > 8);
  return c;
}

TEST(OneProgram, RecordedOpsEqualTheProgram) {
  std::mt19937 random(20240731);
  for (int i = 0; i < 24; ++i) {
    const LayoutChoice choice = draw(random);
    SCOPED_TRACE(describe(choice));
    const config::Dtype dtype = i % 3 == 0 ? config::Dtype::bf16 : config::Dtype::fp32;
    const config::RunFile run = small_run(choice, dtype, 2);
    const JobResult job = run_job(run, {.steps = 2, .record = true});
    const parallel::Layout layout(run);
    const auto programs = parallel::build_step_programs(layout);
    ASSERT_EQ(job.ranks.size(), static_cast<size_t>(layout.mesh().size()));
    for (const RankOps& rank : job.ranks) {
      EXPECT_EQ(recorded(rank), programmed(layout, programs[static_cast<size_t>(rank.at.pp)]))
          << "rank " << rank.rank;
    }
  }
}

// An action that is taken out of, or put into, every pipeline position's program changes the run's own
// record.
TEST(OneProgram, AMutatedProgramIsWhatRuns) {
  const config::RunFile run = small_run({.tp = 2, .pp = 2, .dp = 2}, config::Dtype::fp32, 1);
  const parallel::Layout layout(run);
  const JobResult plain = run_job(run, {.steps = 1, .record = true});
  for (const ActionKind kind : {ActionKind::reduce_gradients, ActionKind::gradient_norm,
                                ActionKind::optimizer_step, ActionKind::gather_parameters}) {
    for (const bool remove : {true, false}) {
      const auto mutate = [&](std::vector<parallel::Program>& programs, int) {
        for (parallel::Program& program : programs) {
          const auto at = std::find_if(program.actions.begin(), program.actions.end(),
                                       [&](const parallel::Action& a) { return a.kind == kind; });
          if (remove) {
            program.actions.erase(at);
          } else {
            program.actions.insert(at, parallel::Action(*at));
          }
        }
      };
      SCOPED_TRACE(std::string(remove ? "without " : "twice ") + parallel::to_string(kind));
      auto programs = parallel::build_step_programs(layout);
      mutate(programs, 0);
      const JobResult job = run_job(run, {.steps = 1, .record = true, .mutate = mutate});
      for (size_t i = 0; i < job.ranks.size(); ++i) {
        const RankOps& rank = job.ranks[i];
        EXPECT_EQ(recorded(rank), programmed(layout, programs[static_cast<size_t>(rank.at.pp)]));
        const auto same = std::find_if(plain.ranks.begin(), plain.ranks.end(),
                                       [&](const RankOps& r) { return r.rank == rank.rank; });
        EXPECT_NE(recorded(rank), recorded(*same));
      }
    }
  }
}

}  // namespace
}  // namespace lockstep::tests
