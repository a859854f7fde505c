#include "plan/search.hpp"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <random>

#include "base/json.hpp"
#include "config/rules.hpp"
#include "cost/step_figures.hpp"
#include "plan/report.hpp"
#include "plan/search_ranking.hpp"
#include "sim/simulate_step.hpp"

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
    // Chunks between the ends count as alike; with zero = 3 and several a stage some gather more often.
    const bool gathers_differ = t.layout.zero == 3 && t.layout.virtual_stages > 1;
    EXPECT_NEAR(t.evaluation.seconds, plan.step.seconds, (gathers_differ ? 0.02 : 0.01) * plan.step.seconds);
    const double bytes = static_cast<double>(plan.memory.fullest().total());
    EXPECT_NEAR(t.evaluation.bytes, bytes, 0.01 * bytes);
  }
}

// The same layouts with each margin; what they hold besides is the same.
TEST(Search, CountsTheMarginAsThePlanDoes) {
  const auto taken = [](const char* margin) {
    LayoutSearch search(large_run({std::string("software.memory_margin=") + margin}), {512});
    Sample sample(20, 3);
    search.run_over(2048, sample);
    return sample.taken;
  };
  const std::vector<Taken> none = taken("0"), quarter = taken("0.25");
  ASSERT_EQ(none.size(), 20u);
  ASSERT_EQ(quarter.size(), 20u);
  for (size_t i = 0; i < none.size(); ++i) {
    EXPECT_NEAR(quarter[i].evaluation.bytes, 1.25 * none[i].evaluation.bytes,
                1e-9 * none[i].evaluation.bytes);
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

// The fastest by the closed form is nearly the fastest of its rivals by the simulator.
void expect_the_best(const config::RunFile& base, int64_t gpus, int64_t batch) {
  LayoutSearch search(base, {batch});
  Ranking ranking(base.cluster.memory_bytes, 50);
  search.run_over(gpus, ranking);
  ASSERT_EQ(ranking.best().size(), 50u);
  double least = 0, of_first = 0;
  for (const Ranked& ranked : ranking.best()) {
    const parallel::Layout layout(search.run_of(ranked.layout));
    sim::StepOptions options;
    options.jitter = false;
    const double seconds = sim::simulate_step(layout, parallel::build_step_programs(layout), options).seconds;
    if (of_first == 0) of_first = seconds;
    if (least == 0 || seconds < least) least = seconds;
  }
  testing::Test::RecordProperty(fmt::format("above_the_best_on_{}", gpus),
                                fmt::format("{:.4f}", of_first / least - 1));
  EXPECT_LE(of_first, 1.01 * least) << gpus;
}

TEST(Search, ItsBestIsWithinOnePercentOfTheSimulatorsBest) {
  const std::vector<std::string> even = {"parallel.first_stage_less_layers=0",
                                         "parallel.last_stage_less_layers=0", "parallel.virtual_stages=1",
                                         "parallel.schedule=1f1b"};
  const auto with = [&](const char* preset) {
    std::vector<std::string> all = even;
    all.push_back(std::string("model.preset=") + preset);
    return large_run(all);
  };
  expect_the_best(with("llama3-8b"), 64, 128);
  expect_the_best(with("llama3-70b"), 256, 256);
  expect_the_best(large_run(), 1024, 512);
}

}  // namespace
}  // namespace lockstep::plan
