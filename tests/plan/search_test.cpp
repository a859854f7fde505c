#include "plan/search.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <random>

#include "base/json.hpp"
#include "config/rules.hpp"
#include "cost/step_figures.hpp"
#include "plan/report.hpp"

namespace lockstep::plan {
namespace {

config::RunFile large_run(const std::vector<std::string>& overrides = {}) {
  return config::load_run_file(LOCKSTEP_SOURCE_DIR "/configs/llama3-405b-16k.toml", overrides);
}

struct Taken {
  SearchLayout layout;
  Evaluation evaluation;
};

// Keeps a random sample, each layout with the same probability.
class Sample : public LayoutSearch::Visitor {
 public:
  Sample(size_t most, unsigned seed) : most_(most), engine_(seed) {}
  void take(const SearchLayout& layout, const Evaluation& evaluation) override {
    ++count;
    if (taken.size() < most_) {
      taken.push_back({layout, evaluation});
    } else if (const size_t at = engine_() % count; at < most_) {
      taken[at] = {layout, evaluation};
    }
  }
  std::vector<Taken> taken;
  size_t count = 0;

 private:
  size_t most_;
  std::mt19937_64 engine_;
};

void expect_agreement(const config::RunFile& base, int64_t gpus, std::vector<int64_t> batches, size_t most) {
  LayoutSearch search(base, std::move(batches));
  Sample sample(most, 7);
  search.run_over(gpus, sample);
  ASSERT_EQ(sample.taken.size(), most);
  for (const Taken& t : sample.taken) {
    const config::RunFile run = search.run_of(t.layout);
    SCOPED_TRACE(cost::layout_json(run).dump());
    std::vector<config::Problem> problems;
    config::check_rules(run, {}, problems);
    ASSERT_TRUE(problems.empty()) << problems.front().key << " " << problems.front().rule;
    const Plan plan = plan_of(run);
    EXPECT_EQ(plan.run.parallel.world_size(), gpus);
    EXPECT_NEAR(t.evaluation.seconds, plan.step.seconds, 0.01 * plan.step.seconds);
    const double bytes = static_cast<double>(plan.memory.fullest().total());
    EXPECT_NEAR(t.evaluation.bytes, bytes, 0.01 * bytes);
  }
}

TEST(Search, EveryLayoutIsValidAndAgreesWithItsPlan) {
  expect_agreement(large_run(), 1024, {256, 96}, 150);
  const std::vector<std::string> small = {"model.preset=llama3-8b",
                                          "parallel.first_stage_less_layers=0",
                                          "parallel.last_stage_less_layers=0",
                                          "parallel.virtual_stages=1",
                                          "parallel.schedule=1f1b",
                                          "model.tie_embeddings=true"};
  expect_agreement(large_run(small), 64, {64, 48, 512}, 150);
}

}  // namespace
}  // namespace lockstep::plan
