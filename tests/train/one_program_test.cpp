// One program: what a real run executed is what the program says, by name, order per stream and bytes; and a
// changed program changes what is executed.
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <random>

#include "base/error.hpp"
#include "parallel/live_bytes.hpp"
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

ByStream recorded(const std::vector<nn::OpRecord>& ops) {
  ByStream streams;
  for (const nn::OpRecord& op : ops) {
    if (op.stream == observe::Stream::exposed) continue;  // a wait, no op
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

// Draws a layout over all axes, schedules and choices that this job allows, on at most 8 workers.
LayoutChoice draw(std::mt19937& random) {
  const auto pick = [&](std::initializer_list<int64_t> values) {
    return *(values.begin() +
             std::uniform_int_distribution<int>(0, static_cast<int>(values.size()) - 1)(random));
  };
  const auto coin = [&] { return pick({0, 1}) == 1; };
  LayoutChoice c;
  do {
    c = {.tp = pick({1, 2, 4}), .cp = pick({1, 1, 2, 4}), .pp = pick({1, 2, 3, 4}), .dp = pick({1, 2, 3})};
  } while (c.tp * c.cp * c.pp * c.dp > 8);
  c.schedule = static_cast<config::ScheduleKind>(pick({0, 1, 2, 3}));
  if (c.schedule == config::ScheduleKind::interleaved) c.virtual_stages = pick({1, 2, 3});
  c.sequence_parallel = pick({0, 1, 2}) > 0;
  c.layer_split = config::LayerSplit::cost;
  c.replicas = c.dp + pick({0, 0, 1, 2});
  if (8 % c.replicas != 0) c.replicas = c.dp == 3 ? 4 : 4 / c.dp * c.dp;
  c.micro_batch = 8 / c.replicas > 1 ? pick({1, 2}) : 1;
  c.zero = pick({0, 1, 2, 3});
  c.reshard_after_forward = coin();
  if (c.zero >= 2 && coin()) c.gradient_scatter = config::GradientScatter::micro_batch;
  const std::vector<std::vector<std::string>> recompute = {{}, {"norm"}, {"swiglu", "attention"}, {"full"}};
  c.recompute = recompute[static_cast<size_t>(pick({0, 1, 2, 3}))];
  if (!c.recompute.empty()) c.recompute_every = pick({1, 2});
  if (coin() && (c.recompute.empty() || c.recompute[0] != "norm")) {
    c.gathered_input = config::GatheredInput::keep;
  }
  c.layers = pick({4, 5});
  c.kv_heads = pick({2, 4});
  c.vocab = pick({256, 259});
  c.tie_embeddings = (c.pp > 1 || c.virtual_stages == 1) && coin();
  c.document_mask = coin();
  return c;
}

TEST(OneProgram, RecordedOpsEqualTheProgram) {
  std::mt19937 random(20240731);
  for (int i = 0; i < 40; ++i) {
    const LayoutChoice choice = draw(random);
    SCOPED_TRACE(describe(choice));
    const config::Dtype dtype = i % 3 == 0 ? config::Dtype::bf16 : config::Dtype::fp32;
    config::RunFile run = small_run(choice, dtype, 2);
    run.train.eval_sequences = run.train.global_batch;  // as many micro-batches as a step has, or fewer
    const JobResult job = run_job(run, {.steps = 2, .record = true, .evaluate = true});
    const parallel::Layout layout(run);
    const auto programs = parallel::build_step_programs(layout);
    const auto evaluation = parallel::build_evaluation_programs(
        layout, static_cast<int>(run.train.global_batch / (choice.dp * choice.micro_batch)) +
                    (run.train.global_batch % (choice.dp * choice.micro_batch) == 0 ? 0 : 1));
    ASSERT_EQ(job.ranks.size(), static_cast<size_t>(layout.mesh().size()));
    for (const RankOps& rank : job.ranks) {
      EXPECT_EQ(recorded(rank.ops), programmed(layout, programs[static_cast<size_t>(rank.at.pp)]))
          << "rank " << rank.rank;
      EXPECT_EQ(recorded(rank.evaluation), programmed(layout, evaluation[static_cast<size_t>(rank.at.pp)]))
          << "evaluation, rank " << rank.rank;
    }
  }
}

// What a schedule predicts of live activations, to the byte, on every rank.
TEST(OneProgram, TheMeasuredPeakOfActivationsIsThePrograms) {
  std::mt19937 random(7);
  for (int i = 0; i < 24; ++i) {
    const LayoutChoice choice = draw(random);
    SCOPED_TRACE(describe(choice));
    const config::RunFile run = small_run(choice, config::Dtype::bf16, 1);
    const parallel::Layout layout(run);
    const auto programs = parallel::build_step_programs(layout);
    const auto check = [&](const train::Trainer& trainer, const train::StepReport& report, int rank) {
      const auto& program = programs[static_cast<size_t>(trainer.groups().at.pp)];
      EXPECT_EQ(report.peak_activation_bytes, parallel::peak_activation_bytes(layout, program)) << rank;
    };
    run_job(run, {.steps = 1, .after_last_step = check});
  }
}

// An action that is taken out of, or put into, every pipeline position's program changes the run's own
// record.
void expect_mutations_run(const LayoutChoice& choice, const std::vector<ActionKind>& kinds) {
  const config::RunFile run = small_run(choice, config::Dtype::fp32, 1);
  const parallel::Layout layout(run);
  const JobResult plain = run_job(run, {.steps = 1, .record = true});
  for (const ActionKind kind : kinds) {
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
        EXPECT_EQ(recorded(rank.ops), programmed(layout, programs[static_cast<size_t>(rank.at.pp)]));
        const auto same = std::find_if(plain.ranks.begin(), plain.ranks.end(),
                                       [&](const RankOps& r) { return r.rank == rank.rank; });
        EXPECT_NE(recorded(rank.ops), recorded(same->ops));
      }
    }
  }
}

TEST(OneProgram, AMutatedProgramIsWhatRuns) {
  expect_mutations_run({.tp = 2, .pp = 2, .dp = 2},
                       {ActionKind::reduce_gradients, ActionKind::gradient_norm, ActionKind::optimizer_step,
                        ActionKind::gather_parameters});
  expect_mutations_run({.pp = 2, .dp = 2, .zero = 0, .tie_embeddings = true},
                       {ActionKind::gather_gradients, ActionKind::sum_tied_gradients});
}

// Parameters that are gathered twice are a second message; parameters that are not there are missed.
TEST(OneProgram, GatheringIsTheProgramsToSay) {
  const config::RunFile run = small_run({.dp = 2, .zero = 3}, config::Dtype::fp32, 1);
  const auto first = [](std::vector<parallel::Program>& programs, ActionKind kind) {
    auto& actions = programs[0].actions;
    return std::find_if(actions.begin(), actions.end(),
                        [&](const parallel::Action& a) { return a.kind == kind; });
  };
  const auto twice = [&](std::vector<parallel::Program>& programs, int) {
    programs[0].actions.insert(first(programs, ActionKind::unshard), {ActionKind::unshard, 0});
  };
  const auto count = [](const JobResult& job) {
    return std::count_if(job.ranks[0].ops.begin(), job.ranks[0].ops.end(),
                         [](const nn::OpRecord& op) { return op.name == "parameter_all_gather"; });
  };
  EXPECT_EQ(count(run_job(run, {.steps = 1, .record = true})), 1);
  EXPECT_EQ(count(run_job(run, {.steps = 1, .record = true, .mutate = twice})), 2);
  const auto without = [&](std::vector<parallel::Program>& programs, int) {
    programs[0].actions.erase(first(programs, ActionKind::unshard));
  };
  EXPECT_THROW(run_job(run, {.steps = 1, .mutate = without}), RunError);
  const auto kept = [&](std::vector<parallel::Program>& programs, int) {
    programs[0].actions.erase(first(programs, ActionKind::reshard));
  };
  const auto expect_parameters = [](bool there) {
    return [there](const train::Trainer& trainer, const train::StepReport&, int) {
      EXPECT_EQ(trainer.executor().chunks()[0]->model().weights().defined(), there);
    };
  };
  run_job(run, {.steps = 1, .after_last_step = expect_parameters(false)});
  run_job(run, {.steps = 1, .mutate = kept, .after_last_step = expect_parameters(true)});
}

// A half of a backward that is left out is missed by the other.
TEST(OneProgram, BothHalvesOfABackwardAreTheProgramsToSay) {
  const config::RunFile run =
      small_run({.schedule = config::ScheduleKind::zero_bubble_h1}, config::Dtype::fp32, 1);
  for (const ActionKind kind : {ActionKind::backward_input, ActionKind::backward_weight}) {
    const auto without = [&](std::vector<parallel::Program>& programs, int) {
      auto& actions = programs[0].actions;
      actions.erase(std::find_if(actions.begin(), actions.end(),
                                 [&](const parallel::Action& a) { return a.kind == kind; }));
    };
    if (kind == ActionKind::backward_input) {
      EXPECT_THROW(run_job(run, {.steps = 1, .mutate = without}), RunError);
    } else {
      EXPECT_NE(run_job(run, {.steps = 1, .mutate = without}).hash, run_job(run, {.steps = 1}).hash);
    }
  }
}

}  // namespace
}  // namespace lockstep::tests