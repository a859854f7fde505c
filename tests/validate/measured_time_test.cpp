// Conversions of published figures into seconds, against values worked out by hand from the formulas.
#include "validate/measured_time.hpp"

#include <gtest/gtest.h>

#include "config/load.hpp"

namespace lockstep::validate {
namespace {

config::RunFile run_of(const std::string& model, int dp, int cp, int sequence, int batch,
                       const std::string& more) {
  const std::string text =
      "name = \"x\"\n[model]\n" + model +
      "\n[cluster]\npreset = \"h100-24k\"\nmax_gpus = 0\ngpus = " + std::to_string(128 * dp * cp) +
      "\n[parallel]\ntp = 8\npp = 16\ncp = " + std::to_string(cp) + "\ndp = " + std::to_string(dp) + "\n" +
      more + "\n[train]\nsequence = " + std::to_string(sequence) +
      "\nglobal_batch = " + std::to_string(batch) + "\n";
  const config::Examined examined = config::examine_run_text(text, "x.toml", {});
  EXPECT_TRUE(examined.problems.empty()) << to_string(examined.problems);
  return examined.run;
}

config::RunFile llama(int dp, int cp, int sequence, int batch) {
  return run_of("preset = \"llama3-405b\"", dp, cp, sequence, batch,
                "first_stage_less_layers = 1\nlast_stage_less_layers = 1\nschedule = \"interleaved\"\n"
                "virtual_stages = 8");
}

Measurement rate(double tflops, const std::string& kind) {
  Measurement row;
  row.tflops_per_gpu = tflops;
  row.tflops_kind = kind;
  return row;
}

// (6 x 405,853,388,800 + 6 x 126 x 16384 x S) x B S / (GPUs x TFLOP/s): 405,853,388,800 parameters are
// 2 x 128256 x 16384 + 126 x (2 x 16384^2 + 2 x 16384 x 1024 + 3 x 16384 x 53248 + 2 x 16384) + 16384.
TEST(MeasuredTime, Llama3sRowsCountSixNAndCausalAttention) {
  const auto seconds = [](double tflops, int dp, int cp, int sequence, int batch) {
    return measured_time(rate(tflops, "model"), llama(dp, cp, sequence, batch),
                         ModelFlops::all_parameters_causal)
        .seconds;
  };
  EXPECT_NEAR(seconds(430, 64, 1, 8192, 2048), 12.08124218424201, 1e-9);
  EXPECT_NEAR(seconds(400, 128, 1, 8192, 2048), 6.49366767403008, 1e-9);
  EXPECT_NEAR(seconds(380, 8, 16, 131072, 128), 10.936907373643452, 1e-9);
}

// 6 x (405,853,388,800 - 128256 x 16384 - 253 x 16384) + 12 x 126 x 16384 x 8192 FLOPs a token.
TEST(MeasuredTime, PalmsFlopsCountWhatMultipliesAndFullAttention) {
  const config::RunFile run = llama(64, 1, 8192, 2048);
  EXPECT_NEAR(measured_time(rate(400, "model"), run, ModelFlops::palm).seconds, 13.442173894656, 1e-9);
  Measurement row;
  row.mfu_percent = 40;  // of 989.5 TFLOP/s
  EXPECT_NEAR(measured_time(row, run, ModelFlops::palm).seconds, 13.584814446342596, 1e-9);
  // Whatever the source's own convention: an MFU is PaLM's.
  EXPECT_NEAR(measured_time(row, run, ModelFlops::all_parameters_causal).seconds, 13.584814446342596, 1e-9);
}

// arXiv:2104.04473, equation 3: 96 x 3072 x 2048 x 128 x 25600^2 x (1 + 2048 / 153600 + 51200 / 52428800).
TEST(MeasuredTime, HardwareFlopsAreThoseOfFullRecomputation) {
  const std::string model =
      "layers = 128\nhidden = 25600\nffn = 102400\nheads = 160\nkv_heads = 160\nvocab = 51200";
  const config::RunFile full = run_of(model, 24, 1, 2048, 3072, "recompute = \"full\"");
  ASSERT_EQ(full.parallel.world_size(), 3072);
  EXPECT_NEAR(measured_time(rate(163, "hardware (recompute counted)"), full, ModelFlops::palm).seconds,
              102.6299562549399, 1e-8);
  const config::RunFile none = run_of(model, 24, 1, 2048, 3072, "");
  EXPECT_EQ(measured_time(rate(163, "hardware"), none, ModelFlops::palm).reason,
            "tflops_kind hardware is understood with full recomputation alone");
}

TEST(MeasuredTime, TakesTheStepTimeFirstAndSaysWhereThereIsNone) {
  const config::RunFile run = llama(64, 1, 8192, 2048);
  Measurement row = rate(400, "model");
  row.mfu_percent = 40;
  row.step_seconds = 12.5;
  EXPECT_EQ(measured_time(row, run, ModelFlops::palm).seconds, 12.5);
  EXPECT_EQ(measured_time(Measurement{}, run, ModelFlops::palm).reason,
            "step_time_s, tflops_per_gpu and mfu_pct are all empty");
  EXPECT_EQ(measured_time(rate(400, ""), run, ModelFlops::palm).reason,
            "tflops_kind = \"\" is not known: it begins with model or hardware");
}

}  // namespace
}  // namespace lockstep::validate
