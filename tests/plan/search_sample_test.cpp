// A search's times against the simulator's, over a sample of all layouts that are nearly as fast as its best.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <random>

#include "plan/search_result.hpp"
#include "sim/simulate_step.hpp"

namespace lockstep::plan {
namespace {

config::RunFile large_run(const std::vector<std::string>& overrides) {
  return config::load_run_file(LOCKSTEP_SOURCE_DIR "/configs/llama3-405b-16k.toml", overrides,
                               unchosen_keys());
}

double simulated(const config::RunFile& run) {
  const parallel::Layout layout(run);
  sim::StepOptions options;
  options.jitter = false;
  return sim::simulate_step(layout, parallel::build_step_programs(layout), options).seconds;
}

// Layouts that fit and take at most 15 % longer than the fastest, equally many of each 2.5 %.
class Strata : public LayoutSearch::Visitor {
 public:
  static constexpr size_t strata = 6;
  static constexpr double width = 0.025;

  Strata(double capacity, double fastest, size_t each)
      : capacity_(capacity), fastest_(fastest), each_(each), engine_(11) {}
  void take(const SearchLayout& layout, const Evaluation& evaluation) override {
    const double slower = evaluation.seconds / fastest_ - 1;
    if (evaluation.bytes > capacity_ || slower > width * strata) return;
    const size_t of = std::min(static_cast<size_t>(std::max(slower, 0.0) / width), strata - 1);
    Stratum& stratum = strata_[of];
    ++stratum.count;
    if (stratum.taken.size() < each_) {
      stratum.taken.push_back({layout, evaluation});
    } else if (const size_t at = engine_() % stratum.count; at < each_) {
      stratum.taken[at] = {layout, evaluation};
    }
  }
  std::vector<Ranked> sample() const {
    std::vector<Ranked> out;
    for (const Stratum& one : strata_) out.insert(out.end(), one.taken.begin(), one.taken.end());
    return out;
  }

 private:
  struct Stratum {
    size_t count = 0;
    std::vector<Ranked> taken;
  };
  double capacity_, fastest_;
  size_t each_;
  std::array<Stratum, strata> strata_;
  std::mt19937_64 engine_;
};

void expect_close(const config::RunFile& run, size_t each) {
  const Plan best = search_layouts(run).best.front().plan;
  LayoutSearch search(run, {run.train.global_batch});
  Strata strata(run.cluster.memory_bytes, best.step.seconds, each);
  search.run_over(run.cluster.gpus, strata);
  const std::vector<Ranked> sample = strata.sample();
  ASSERT_GE(sample.size(), 5 * each);
  const double of_best = simulated(best.run);
  std::vector<double> errors;
  double least = of_best;
  for (const Ranked& one : sample) {
    const config::RunFile layout = search.run_of(one.layout);
    const double seconds = simulated(layout);
    least = std::min(least, seconds);
    errors.push_back(one.evaluation.seconds / seconds - 1);
    EXPECT_GT(seconds, of_best / 1.03) << cut_of(layout);
  }
  std::sort(errors.begin(), errors.end());
  const double median = errors[errors.size() / 2];
  const std::string figures =
      fmt::format("best {:.4f} above the least; errors {:.4f} to {:.4f}, median {:.4f}, of {}",
                  of_best / least - 1, errors.front(), errors.back(), median, errors.size());
  testing::Test::RecordProperty(fmt::format("on_{}", run.cluster.gpus), figures);
  EXPECT_LE(std::abs(median), 0.015) << figures;
}

TEST(SearchSample, NoLayoutIsMuchFasterThanTheBestInSimulation) {
  expect_close(large_run({"cluster.gpus=1024", "train.global_batch=512"}), 10);
}

TEST(SearchSample, NoneOf16384GpusEither) { expect_close(large_run({}), 2); }

}  // namespace
}  // namespace lockstep::plan
