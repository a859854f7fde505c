// Resharding has no ops and takes no time: what a changed program changes there is the memory.
#include <gtest/gtest.h>

#include <algorithm>

#include "base/error.hpp"
#include "parallel/program_check.hpp"
#include "parallel/sample_run.hpp"
#include "plan/memory.hpp"

namespace lockstep::plan {
namespace {

using parallel::Action;
using parallel::ActionKind;

class Reshard : public testing::Test {
 protected:
  static config::RunFile sharded_run() {
    config::RunFile run = tests::sample_run(2, 2, 2, 4, 4);
    run.parallel.zero = 3;
    return run;
  }
  int64_t tensors(const std::vector<parallel::Program>& programs) const {
    return memory_of(layout_, programs).stages[0].tensors();
  }
  // Places of the first stage's reshards.
  std::vector<size_t> places() const {
    std::vector<size_t> out;
    for (size_t i = 0; i < programs_[0].actions.size(); ++i) {
      if (programs_[0].actions[i].kind == ActionKind::reshard) out.push_back(i);
    }
    return out;
  }
  void expect_refused(const std::vector<parallel::Program>& changed, const std::string& why) const {
    try {
      parallel::check_step_programs(layout_, changed);
      ADD_FAILURE() << "not refused";
    } catch (const RunError& error) {
      EXPECT_NE(std::string(error.what()).find(why), std::string::npos) << error.what();
    }
  }

  const parallel::Layout layout_{sharded_run()};
  const std::vector<parallel::Program> programs_ = parallel::build_step_programs(layout_);
};

TEST_F(Reshard, MissingOrDoubledIsRefused) {
  ASSERT_GT(places().size(), 8u);
  for (const size_t place : places()) {
    SCOPED_TRACE("action " + std::to_string(place));
    auto changed = programs_;
    auto& actions = changed[0].actions;
    const Action action = actions[place];
    actions.insert(actions.begin() + static_cast<std::ptrdiff_t>(place), action);
    expect_refused(changed, parallel::describe(action) + ": the parameters are not gathered");
    actions.erase(actions.begin() + static_cast<std::ptrdiff_t>(place),
                  actions.begin() + static_cast<std::ptrdiff_t>(place) + 2);
    const bool again = std::find(actions.begin() + static_cast<std::ptrdiff_t>(place), actions.end(),
                                 Action{ActionKind::unshard, action.chunk}) != actions.end();
    expect_refused(changed,
                   again ? "the parameters are gathered already" : "gathered parameters are left over");
  }
}

// Together with the next gather a reshard can go: the chunk stays, and the stage holds it at its fullest
// moment where that lies between the two.
TEST_F(Reshard, LeftOutWithTheNextGatherKeepsTheChunk) {
  const int64_t whole = tensors(programs_);
  int fuller = 0, pairs = 0;
  for (const size_t place : places()) {
    auto changed = programs_;
    auto& actions = changed[0].actions;
    const int chunk = actions[place].chunk;
    const auto at = actions.erase(actions.begin() + static_cast<std::ptrdiff_t>(place));
    const auto next = std::find(at, actions.end(), Action{ActionKind::unshard, chunk});
    if (next == actions.end()) continue;
    actions.erase(next);
    ++pairs;
    EXPECT_NO_THROW(parallel::check_step_programs(layout_, changed));
    const int64_t bytes = layout_.padded_chunk_elements(0, chunk) * layout_.shape().element_bytes;
    const int64_t more = tensors(changed) - whole;
    EXPECT_GE(more, 0);
    EXPECT_LE(more, bytes);
    if (more > 0) ++fuller;
  }
  EXPECT_GT(pairs, 0);
  EXPECT_GT(fuller, 0);
}

// Without any, the whole stage is there at the end of the step's passes.
TEST_F(Reshard, EveryOneLeftOutHoldsTheWholeStage) {
  auto changed = programs_;
  std::vector<bool> seen(static_cast<size_t>(layout_.virtual_stages()));
  std::erase_if(changed[0].actions, [&](const Action& a) {
    if (a.kind != ActionKind::unshard) return a.kind == ActionKind::reshard;
    const bool again = seen[static_cast<size_t>(a.chunk)];
    seen[static_cast<size_t>(a.chunk)] = true;
    return again;
  });
  int64_t stage = 0;
  for (int c = 0; c < layout_.virtual_stages(); ++c) {
    stage += layout_.padded_chunk_elements(0, c) * layout_.shape().element_bytes;
  }
  EXPECT_EQ(memory_of(layout_, changed).stages[0].gathered, stage);
  EXPECT_LT(memory_of(layout_, programs_).stages[0].gathered, stage);
}

}  // namespace
}  // namespace lockstep::plan
