#include "cost/step_figures.hpp"

#include <gtest/gtest.h>

#include "base/json.hpp"

namespace lockstep::cost {
namespace {

config::RunFile llama_405b() {
  return config::load_run_file(LOCKSTEP_SOURCE_DIR "/configs/llama3-405b-16k.toml", {});
}

TEST(StepFigures, OfTheLargeRun) {
  const StepFigures f = step_figures(llama_405b(), 6.0, 0.1, {});
  EXPECT_EQ(f.tokens, 16777216);
  EXPECT_DOUBLE_EQ(f.tokens_per_second, 16777216 / 6.0);
  // By hand: multiplying parameters are 126 layers of (16384 x (16384 + 2 x 1024) + 16384^2 + 3 x 16384 x
  // 53248) and the output matrix of 128256 x 16384.
  const double layer = 16384.0 * (16384 + 2 * 1024) + 16384.0 * 16384 + 3 * 16384.0 * 53248;
  const double multiplying = 126 * layer + 128256.0 * 16384;
  const double attention = 12.0 * 126 * 16384 * 8192;
  const double per_gpu = 16777216 / 6.0 / 16384;
  EXPECT_NEAR(f.tflops_per_gpu, (6 * multiplying + attention) * per_gpu / 1e12, 1e-9);
  EXPECT_NEAR(f.mfu, (6 * multiplying + attention) * per_gpu / 989.5e12, 1e-12);
  EXPECT_NEAR(f.mfu_causal, (6 * multiplying + attention / 2) * per_gpu / 989.5e12, 1e-12);
}

TEST(StepFigures, JsonHasTheNamesOfTheInterface) {
  StepSplit split;
  split.compute = 4;
  split.barrier = 2;
  const Json json = step_json(step_figures(llama_405b(), 6.0, 0.1, split));
  std::vector<std::string> names;
  for (const auto& [name, value] : json.items()) names.push_back(name);
  EXPECT_EQ(names, (std::vector<std::string>{"seconds", "tokens", "tokens_per_second", "tflops_per_gpu",
                                             "mfu", "mfu_causal", "bubble_fraction", "split_seconds"}));
  EXPECT_EQ(json["split_seconds"]["compute"], 4.0);
  EXPECT_EQ(json["split_seconds"]["barrier"], 2.0);
  EXPECT_EQ(json["split_seconds"].size(), 9u);
  EXPECT_DOUBLE_EQ(split.total(), 6);
  const auto parts = split.parts();
  const auto values = split.values();
  for (size_t i = 0; i < parts.size(); ++i) {
    *parts[i] = 10 + static_cast<double>(i);
    EXPECT_EQ(split.values()[i], *parts[i]) << StepSplit::names[i];
    *parts[i] = values[i];
  }
}

TEST(StepFigures, LayoutAndModelBlocks) {
  const Json layout = layout_json(llama_405b());
  EXPECT_EQ(layout.dump(),
            R"({"tp":8,"cp":1,"pp":16,"dp":128,"virtual_stages":8,"micro_batch":1,"micro_batches":16,)"
            R"("schedule":"interleaved","zero":1,"recompute":["norm","swiglu"],"world_size":16384})");
  EXPECT_EQ(model_json(llama_405b())["parameters"], 405853388800);
}

}  // namespace
}  // namespace lockstep::cost
