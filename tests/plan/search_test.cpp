#include "plan/search.hpp"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <random>
#include <set>
#include <sstream>

#include "base/json.hpp"
#include "config/presets.hpp"
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

// Every layout is one that config accepts, and its plan says what the search says.
void expect_agreement(const config::RunFile& base, int64_t gpus, std::vector<int64_t> batches, size_t most,
                      std::set<std::string> held = {}) {
  LayoutSearch search(base, std::move(batches), std::move(held));
  Sample sample(most, 7);
  search.run_over(gpus, sample);
  ASSERT_GT(sample.taken.size(), 0u);
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

const std::vector<std::string> of_one_stage = {"parallel.first_stage_less_layers=0",
                                               "parallel.last_stage_less_layers=0",
                                               "parallel.virtual_stages=1", "parallel.schedule=1f1b"};

config::RunFile small_run(const char* preset, const std::vector<std::string>& more = {}) {
  // The run file recomputes what a gpt model does not have.
  std::vector<std::string> all = of_one_stage;
  all.push_back(std::string("model.preset=") + preset);
  if (std::string(preset) == "gpt3-175b") all.push_back("parallel.recompute=[\"gelu\"]");
  all.insert(all.end(), more.begin(), more.end());
  return config::load_run_file(LOCKSTEP_SOURCE_DIR "/configs/llama3-405b-16k.toml", all, unchosen_keys());
}

TEST(Search, EveryLayoutIsValidAndAgreesWithItsPlan) {
  expect_agreement(large_run(), 1024, {256, 96}, 100);
  expect_agreement(small_run("llama3-8b", {"model.tie_embeddings=true"}), 64, {64, 48, 512}, 100);
}

// What programs do with hosts, reductions and gradients is counted as single plans count it.
TEST(Search, AgreesWithPlansOfAllSoftware) {
  for (const std::string& preset : config::preset_names(config::PresetKind::software)) {
    SCOPED_TRACE(preset);
    expect_agreement(small_run("llama3-8b", {"software.preset=" + preset}), 96, {96, 480}, 40);
    expect_agreement(small_run("gpt3-175b", {"software.preset=" + preset, "train.sequence=2048"}), 512, {512},
                     24);
  }
}

TEST(Search, AgreesWithPlansWhateverTheHostAndItsGradientsDo) {
  const std::vector<std::vector<std::string>> settings = {
      {"software.host_seconds_per_launch=5e-5"},
      {"software.host_seconds_per_micro_batch=0.2", "software.host_skew=0.5"},
      {"software.host_seconds_per_launch=2e-4", "software.overlap_gradients=false"},
      {"software.reduce_in_place=true", "software.overlap_parameters=true"},
      {"software.fused_weight_gradients=true", "software.loss_memory=14"},
      {"parallel.gradient_scatter=micro_batch"},
      {"parallel.gradient_scatter=micro_batch", "parallel.reshard_after_forward=false",
       "software.host_seconds_per_launch=5e-5"},
  };
  for (const std::vector<std::string>& more : settings) {
    SCOPED_TRACE(more.front());
    expect_agreement(small_run("llama3-8b", more), 64, {64, 384}, 50);
  }
}

// Small clusters, sizes that are no powers of two, layers that no pipeline divides, one key and value head.
TEST(Search, AgreesWithPlansOfOddModelsAndClusters) {
  for (const int64_t gpus : {1, 2, 7, 12}) expect_agreement(small_run("llama3-8b"), gpus, {84, 16}, 40);
  expect_agreement(small_run("llama3-70b", {"model.layers=61"}), 96, {192}, 60);
  expect_agreement(small_run("llama3-70b", {"model.kv_heads=1"}), 48, {96}, 60);
  expect_agreement(small_run("llama3-70b", {"model.heads=96", "model.hidden=12288", "model.kv_heads=12"}),
                   144, {144}, 60);
  expect_agreement(small_run("llama3-8b", {"parallel.rank_order=cp-tp-dp-pp", "train.sequence=12288"}), 72,
                   {144}, 60);
  expect_agreement(small_run("llama3-8b", {"parallel.rank_order=tp-cp-dp-pp", "model.tie_embeddings=true",
                                           "train.sequence=12288"}),
                   36, {36}, 60);
  expect_agreement(small_run("gpt3-175b", {"train.sequence=2304", "model.positions=4096",
                                           "software.preset=megatron-deepspeed"}),
                   288, {288}, 60);
  expect_agreement(
      small_run("llama3-70b", {"cluster.preset=gb200-nvl72", "cluster.gpus=576", "train.sequence=9216"}), 576,
      {1152}, 60);
  expect_agreement(small_run("llama3-8b", {"train.sequence=196608"}), 96, {24}, 60);
  expect_agreement(small_run("llama3-8b", {"data.document_mask=true", "data.prefetch=false"}), 16, {64}, 60);
}

// A last group of fewer micro-batches can need more forwards ahead, as many more with each group: what waits
// then grows with the batch.
TEST(Search, AgreesWithPlansWhoseLastGroupIsSmaller) {
  for (const char* pipeline : {"9 3 27", "8 4 32", "6 4 24", "5 4 20", "4 4 16"}) {
    SCOPED_TRACE(pipeline);
    std::istringstream words(pipeline);
    std::string stages, chunks, layers;
    words >> stages >> chunks >> layers;
    const config::RunFile run =
        small_run("llama3-8b", {"parallel.pp=" + stages, "parallel.virtual_stages=" + chunks,
                                "model.layers=" + layers, "parallel.schedule=interleaved"});
    expect_agreement(run, std::stoi(stages) * 2, {96, 116, 300}, 40,
                     {"parallel.pp", "parallel.virtual_stages"});
  }
}

// The fastest by the closed form is nearly the fastest of the 50 fastest by the simulator.
void expect_the_best(const config::RunFile& base, int64_t gpus, int64_t batch) {
  LayoutSearch search(base, {batch});
  Ranking ranking(base.cluster.memory_bytes, 50);
  search.run_over(gpus, ranking);
  std::vector<Ranked> fastest = ranking.fastest();
  ASSERT_GE(fastest.size(), 50u);
  fastest.resize(50);
  double least = 0, of_first = 0;
  for (const Ranked& ranked : fastest) {
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

TEST(Search, ItsBestIsWithinOnePercentOfTheSimulatorsBestOfItsTop50) {
  expect_the_best(small_run("llama3-8b"), 64, 128);
  expect_the_best(small_run("llama3-70b"), 256, 256);
  expect_the_best(large_run(), 1024, 512);
}

}  // namespace
}  // namespace lockstep::plan
