// What a search shows, against all layouts that it evaluates.
#include "plan/search_result.hpp"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <set>

#include "base/json.hpp"
#include "base/units.hpp"
#include "plan/search_report.hpp"

namespace lockstep::plan {
namespace {

config::RunFile large_run(const std::vector<std::string>& overrides) {
  return config::load_run_file(LOCKSTEP_SOURCE_DIR "/configs/llama3-405b-16k.toml", overrides,
                               unchosen_keys());
}

config::RunFile small_run(std::vector<std::string> overrides) {
  overrides.push_back("model.preset=llama3-8b");
  return large_run(overrides);
}

// All layouts of a run, fastest first by the search's own seconds.
class All : public LayoutSearch::Visitor {
 public:
  explicit All(const config::RunFile& run) : search(run, {run.train.global_batch}) {
    search.run_over(run.cluster.gpus, *this);
    std::stable_sort(ranked.begin(), ranked.end(), [](const Ranked& a, const Ranked& b) {
      return a.evaluation.seconds < b.evaluation.seconds;
    });
  }
  void take(const SearchLayout& layout, const Evaluation& evaluation) override {
    ranked.push_back({layout, evaluation});
  }
  LayoutSearch search;
  std::vector<Ranked> ranked;
};

double bytes(const Plan& plan) { return static_cast<double>(plan.memory.fullest().total()); }

// What is shown fits as the full plan counts, however near to the capacity the search's own bytes are.
TEST(SearchResult, ShowsWhatFitsByItsPlan) {
  for (const char* capacity : {"30e9", "30.3e9", "41.9e9", "52.9e9"}) {
    const SearchResult result = search_layouts(small_run(
        {"cluster.gpus=96", "train.global_batch=480", std::string("cluster.memory_bytes=") + capacity}));
    EXPECT_EQ(result.best.size(), 20u) << capacity;
    EXPECT_TRUE(result.complete);
    double before = 0;
    for (const RankedPlan& one : result.best) {
      EXPECT_TRUE(one.plan.memory.fits()) << capacity;
      EXPECT_GE(one.plan.step.seconds, before);
      before = one.plan.step.seconds;
    }
    for (const Plan& plan : result.front) EXPECT_TRUE(plan.memory.fits()) << capacity;
    EXPECT_LE(result.difference, 0.02);
  }
}

// A layout whose full plan fills a GPU to the byte is shown, though the search's own bytes, which are not
// rounded, are above.
TEST(SearchResult, ShowsWhatFitsByItsPlanAlone) {
  const config::RunFile run = small_run({"cluster.gpus=96", "train.global_batch=480"});
  const All all(run);
  int64_t shown = 0;
  for (size_t i = 0; i < 2000 && shown < 3; ++i) {
    const Ranked& ranked = all.ranked[i];
    const Plan plan = plan_of(all.search.run_of(ranked.layout));
    if (ranked.evaluation.bytes <= bytes(plan)) continue;
    config::RunFile tight = run;
    tight.cluster.memory_bytes = bytes(plan);
    const SearchResult result = search_layouts(tight);
    // A faster one may be too large for it; no slower one is the best.
    ASSERT_FALSE(result.best.empty());
    EXPECT_LE(result.best.front().plan.step.seconds, plan.step.seconds);
    const bool found = std::any_of(result.best.begin(), result.best.end(), [&](const RankedPlan& one) {
      return one.plan.step.seconds <= plan.step.seconds && bytes(one.plan) == bytes(plan);
    });
    const bool behind = result.best.size() == 20 && result.best.back().plan.step.seconds < plan.step.seconds;
    ASSERT_TRUE(found || behind) << i;
    shown += found ? 1 : 0;
  }
  EXPECT_EQ(shown, 3);
}

using Has = bool (*)(const SearchLayout& layout, const config::ParallelConfig& best);
const std::map<std::string, Has> neighbours = {
    {"tp x 2", [](const SearchLayout& l, const config::ParallelConfig& p) { return l.tp == 2 * p.tp; }},
    {"tp / 2", [](const SearchLayout& l, const config::ParallelConfig& p) { return 2 * l.tp == p.tp; }},
    {"cp x 2", [](const SearchLayout& l, const config::ParallelConfig& p) { return l.cp == 2 * p.cp; }},
    {"cp / 2", [](const SearchLayout& l, const config::ParallelConfig& p) { return 2 * l.cp == p.cp; }},
    {"pp x 2", [](const SearchLayout& l, const config::ParallelConfig& p) { return l.pp == 2 * p.pp; }},
    {"pp / 2", [](const SearchLayout& l, const config::ParallelConfig& p) { return 2 * l.pp == p.pp; }},
    {"one chunk a stage",
     [](const SearchLayout& l, const config::ParallelConfig&) { return l.virtual_stages == 1; }},
    {"FSDP alone",
     [](const SearchLayout& l, const config::ParallelConfig&) {
       return l.tp == 1 && l.cp == 1 && l.pp == 1 && l.zero == 3;
     }},
};

// Of all layouts with an axis at a value the fastest that fits in full; nothing where none is valid.
void expect_neighbours(const config::RunFile& run) {
  const SearchResult result = search_layouts(run);
  const All all(run);
  const Plan& best = result.best.front().plan;
  std::set<std::string> seen;
  for (const Neighbour& n : result.neighbours) {
    const auto has = neighbours.find(n.what.substr(0, n.what.find(" (")));
    if (has == neighbours.end()) continue;  // the run's own
    SCOPED_TRACE(n.what);
    seen.insert(has->first);
    std::optional<Plan> fastest;
    double smallest = 0;
    for (const Ranked& one : all.ranked) {
      if (!has->second(one.layout, best.run.parallel)) continue;
      smallest = smallest == 0 ? one.evaluation.bytes : std::min(smallest, one.evaluation.bytes);
      if (one.evaluation.bytes > 1.01 * run.cluster.memory_bytes || fastest) continue;
      Plan plan = plan_of(all.search.run_of(one.layout));
      if (plan.memory.fits()) fastest = std::move(plan);
    }
    ASSERT_EQ(n.plan.has_value(), smallest > 0);
    if (!n.plan) continue;
    EXPECT_EQ(n.plan->memory.fits(), fastest.has_value());
    if (fastest) {
      EXPECT_GE(n.plan->step.seconds, best.step.seconds);
      EXPECT_NEAR(n.plan->step.seconds, fastest->step.seconds, 2e-4 * fastest->step.seconds);
    } else {
      EXPECT_NEAR(bytes(*n.plan), smallest, 0.01 * smallest);
    }
  }
  EXPECT_GE(seen.size(), 5u);
}

TEST(SearchResult, NeighboursAreTheBestOfAllWithTheirSize) {
  expect_neighbours(small_run({"cluster.gpus=64", "train.global_batch=64"}));
  expect_neighbours(small_run({"cluster.gpus=96", "train.global_batch=480", "cluster.memory_bytes=12e9"}));
  expect_neighbours(large_run({"cluster.gpus=1024", "train.global_batch=512"}));
  // Sharded alone it does not fit.
  expect_neighbours(large_run({"cluster.gpus=512", "train.global_batch=512"}));
}

// "21.7 s, 50.0 %, 68.8 GB, tp 2 cp 8 pp 64 dp 1", as a row of the table has it.
std::string row_of(const Plan& plan) {
  return fmt::format("{} {:.1f} {} {}", format_seconds(plan.step.seconds), 100 * plan.step.mfu,
                     format_bytes(bytes(plan)), cut_of(plan.run));
}

TEST(SearchResult, RowsThatPrintAlikeAreOneWithTheirNumber) {
  const config::RunFile run = large_run({"cluster.gpus=1024", "train.global_batch=512"});
  const SearchResult result = search_layouts(run);
  const All all(run);
  ASSERT_EQ(result.best.size(), 20u);
  std::map<std::string, int64_t> rows;
  for (const RankedPlan& one : result.best) rows[row_of(one.plan)] = 0;
  ASSERT_EQ(rows.size(), 20u);
  for (const Ranked& one : all.ranked) {
    if (one.evaluation.seconds > 1.01 * result.best[9].plan.step.seconds) break;
    if (one.evaluation.bytes > 1.01 * run.cluster.memory_bytes) continue;
    const Plan plan = plan_of(all.search.run_of(one.layout));
    const auto row = rows.find(row_of(plan));
    if (plan.memory.fits() && row != rows.end()) ++row->second;
  }
  int64_t merged = 0;
  for (size_t i = 0; i < 10; ++i) {
    EXPECT_EQ(rows[row_of(result.best[i].plan)], 1 + result.best[i].equivalents) << i;
    merged += result.best[i].equivalents;
  }
  EXPECT_GE(merged, 1);
}

// Five that surely fit and five that may do not fill twenty rows, though more fit; two hundred do.
TEST(SearchResult, SaysWhereMoreWouldHaveToBePlanned) {
  const config::RunFile run = small_run({"cluster.gpus=64", "train.global_batch=64"});
  LayoutSearch search(run, {64});
  const auto complete = [&](size_t kept) {
    Ranking ranking(run.cluster.memory_bytes, kept);
    search.run_over(64, ranking);
    size_t planned = 0;
    FullPlans plans(search, [&] { ++planned; });
    const bool all = plans.add_fastest(ranking, 20);
    EXPECT_GE(plans.fastest(20).size(), std::min<size_t>(kept, 20));
    EXPECT_LE(plans.fastest(20).size(), std::min<size_t>(2 * kept, 20));
    EXPECT_LE(planned, ranking.fastest().size());
    return all;
  };
  EXPECT_FALSE(complete(5));
  EXPECT_TRUE(complete(200));
  SearchResult result = search_layouts(run);
  EXPECT_EQ(search_text(result, {}).find("Only the fastest by estimate"), std::string::npos);
  result.complete = false;
  EXPECT_NE(search_text(result, {}).find("Only the fastest by estimate"), std::string::npos);
}

// Of all layouts that fit none is faster and smaller than one of the front.
TEST(SearchResult, NothingBeatsTheFront) {
  const SearchResult result =
      search_layouts(small_run({"cluster.gpus=96", "train.global_batch=480", "cluster.memory_bytes=30e9"}));
  ASSERT_GE(result.front.size(), 5u);
  for (size_t i = 1; i < result.front.size(); ++i) {
    EXPECT_GT(bytes(result.front[i]), bytes(result.front[i - 1]));
    EXPECT_LT(result.front[i].step.seconds, result.front[i - 1].step.seconds);
  }
  EXPECT_EQ(result.front.back().step.seconds, result.best.front().plan.step.seconds);
}

}  // namespace
}  // namespace lockstep::plan
