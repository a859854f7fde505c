// Steps that others have published, predicted with the presets of their devices and software.
#include <gtest/gtest.h>

#include <fmt/format.h>

#include <cmath>

#include "config/load.hpp"
#include "plan/report.hpp"

namespace lockstep::plan {
namespace {

struct Sizes {
  int64_t layers, hidden, ffn, heads, kv_heads, vocab;
  int64_t tp, cp, pp, dp, virtual_stages, ends_less_layers, micro_batch, global_batch, sequence, zero;
};
struct Step {
  Sizes sizes;
  bool sequence_parallel;
  const char* recompute;
  double seconds;
};
struct Source {
  const char *name, *software, *cluster, *device;
  double nic_bandwidth, within;
  const char* architecture;
  std::vector<Step> steps;
  bool of_mean = false;
};

// `seconds`: as published, or from published TFLOP/s as docs/accuracy.md says. Not all rows: a few of each
// source, written down here as run files, apart from how `validate` reads rows. `within`: the project's
// target for the source, of its mean or, where it has one, of its largest error. Each step keeps to it but
// for `of_mean`, all rows of the source, whose mean does. arXiv:2104.04473, table 1; arXiv:2205.05198, table
// 5; MegaScale, NSDI 2024, table 2; arXiv:2407.21783, table 4; Megatron-LM's README, table of H100s;
// arXiv:2410.06511; SimuMax 1.2's measurements on B200; vTrain's data (MICRO 2024).
const std::vector<Source>& sources() {
  static const std::vector<Source> all = {
      {"Narayanan et al.",
       "megatron-2021",
       "a100-selene",
       "",
       2.5e+10,
       0.06,
       "gpt",
       {
           {{30, 3072, 12288, 32, 32, 51200, 2, 1, 1, 32, 1, 0, 8, 512, 2048, 0}, false, R"("full")", 3.697},
           {{40, 6144, 24576, 48, 48, 51200, 8, 1, 1, 32, 1, 0, 8, 1024, 2048, 0}, false, R"("full")", 9.399},
           {{60, 10240, 40960, 80, 80, 51200, 8, 1, 4, 32, 5, 0, 2, 1792, 2048, 0},
            false,
            R"("full")",
            16.06},
           {{96, 16384, 65536, 128, 128, 51200, 8, 1, 16, 15, 6, 0, 1, 2160, 2048, 0},
            false,
            R"("full")",
            37.61},
           {{128, 25600, 102400, 160, 160, 51200, 8, 1, 64, 6, 2, 0, 1, 3072, 2048, 0},
            false,
            R"("full")",
            102.63},
       },
       true},
      {"Korthikanti et al.",
       "megatron-2021",
       "a100-selene",
       "",
       2.5e+10,
       0.08,
       "gpt",
       {
           {{48, 6144, 24576, 64, 64, 51200, 8, 1, 1, 1, 1, 0, 4, 4, 2048, 0}, false, R"("full")", 1.42},
           {{48, 6144, 24576, 64, 64, 51200, 8, 1, 1, 1, 1, 0, 4, 4, 2048, 0}, true, R"(["attention"])", 1.1},
           {{96, 12288, 49152, 96, 96, 51200, 8, 1, 8, 1, 3, 0, 1, 64, 2048, 0},
            true,
            R"(["attention"])",
            13.75},
           {{105, 20480, 81920, 128, 128, 51200, 8, 1, 35, 1, 3, 0, 1, 280, 2048, 0},
            true,
            R"(["attention"])",
            37.83},
           {{128, 25600, 102400, 160, 160, 51200, 8, 1, 64, 1, 1, 0, 1, 512, 2048, 0},
            true,
            R"(["attention"])",
            71.49},
       }},
      {"MegaScale, Megatron-LM",
       "megatron-2023",
       "a100-selene",
       "",
       2.5e+10,
       0.08,
       "gpt",
       {
           {{96, 12288, 49152, 128, 128, 64000, 8, 1, 8, 4, 6, 0, 1, 768, 2048, 1},
            true,
            R"(["attention"])",
            40},
           {{96, 12288, 49152, 128, 128, 64000, 8, 1, 8, 128, 6, 0, 1, 6144, 2048, 1},
            true,
            R"(["attention"])",
            12.24},
       }},
      {"Llama 3",
       "llama3",
       "h100-24k",
       "",
       5e+10,
       0.04,
       "llama",
       {
           {{126, 16384, 53248, 128, 8, 128256, 8, 1, 16, 64, 8, 1, 1, 2048, 8192, 2},
            true,
            R"("none")",
            12.08},
           {{126, 16384, 53248, 128, 8, 128256, 8, 1, 16, 128, 8, 1, 1, 2048, 8192, 2},
            true,
            R"("none")",
            6.494},
           {{126, 16384, 53248, 128, 8, 128256, 8, 16, 16, 8, 8, 1, 1, 128, 131072, 2},
            true,
            R"("none")",
            10.94},
       }},
      {"Megatron-LM's H100 table",
       "megatron-2024",
       "h100-24k",
       "",
       5e+10,
       0.06,
       "gpt",
       {
           {{84, 8192, 32768, 64, 64, 131072, 8, 1, 2, 48, 7, 0, 2, 384, 4096, 1}, true, R"("none")", 2.177},
           {{96, 12288, 49152, 96, 96, 131072, 8, 1, 6, 48, 8, 0, 2, 1152, 4096, 1},
            true,
            R"("none")",
            5.259},
       }},
      {"torchtitan",
       "torchtitan",
       "h100-24k",
       "h100-96g",
       5e+10,
       0.08,
       "llama",
       {
           {{80, 8192, 28672, 64, 8, 128256, 8, 1, 1, 32, 80, 0, 16, 512, 8192, 3}, true, R"("full")", 27.43},
       }},
      {"SimuMax",
       "megatron-2025",
       "b200-nvl8",
       "",
       5e+10,
       0.08,
       "llama",
       {
           {{12, 8192, 28672, 64, 8, 128256, 1, 1, 2, 4, 1, 0, 1, 16, 4096, 1}, false, R"("none")", 0.843},
           {{12, 8192, 28672, 64, 8, 128256, 4, 1, 1, 2, 1, 0, 1, 8, 4096, 1}, true, R"("none")", 0.4098},
           {{4, 16384, 53248, 128, 8, 128256, 1, 1, 2, 4, 1, 0, 1, 16, 4096, 1}, false, R"("none")", 1.075},
           {{12, 8192, 28672, 64, 8, 128256, 2, 4, 1, 1, 1, 0, 1, 4, 32768, 1}, true, R"("none")", 1.758},
           {{4, 16384, 53248, 128, 8, 128256, 2, 4, 1, 1, 1, 0, 1, 4, 131072, 1}, true, R"("none")", 10.58},
       }},
      {"vTrain",
       "megatron-deepspeed",
       "a100-selene",
       "",
       1.25e+10,
       0.09,
       "gpt",
       {
           {{30, 3072, 12288, 32, 32, 51200, 8, 1, 1, 8, 1, 0, 8, 512, 2048, 0}, false, R"("full")", 5.178},
           {{48, 8192, 32768, 64, 64, 51200, 4, 1, 8, 16, 1, 0, 12, 1536, 2048, 0},
            false,
            R"("full")",
            20.61},
           {{96, 12288, 49152, 96, 96, 51200, 4, 1, 32, 4, 1, 0, 6, 1536, 2048, 0},
            false,
            R"("full")",
            66.63},
       }},
      {"vTrain, one node",
       "megatron-deepspeed",
       "a100-selene",
       "",
       1.25e+10,
       0.12,
       "gpt",
       {
           {{24, 1024, 4096, 16, 16, 51200, 1, 1, 1, 2, 1, 0, 1, 16, 1024, 0}, false, R"("full")", 0.6416},
           {{20, 2048, 8192, 16, 16, 51200, 8, 1, 1, 1, 1, 0, 1, 2, 1024, 0}, false, R"("full")", 0.1996},
       }},
  };
  return all;
}

config::RunFile run_of(const Source& source, const Step& step) {
  const Sizes& z = step.sizes;
  const bool llama3 = std::string(source.software) == "llama3";
  std::string text = fmt::format(
      "name = \"t\"\n[model]\narchitecture = \"{}\"\nlayers = {}\nhidden = {}\nffn = {}\nheads = {}\n"
      "kv_heads = {}\nvocab = {}\n",
      source.architecture, z.layers, z.hidden, z.ffn, z.heads, z.kv_heads, z.vocab);
  text += fmt::format("[cluster]\npreset = \"{}\"\nnic_bandwidth = {}\nmax_gpus = 0\ngpus = {}\n",
                      source.cluster, source.nic_bandwidth, z.tp * z.cp * z.pp * z.dp);
  if (*source.device != 0) text += fmt::format("device = \"{}\"\n", source.device);
  text += fmt::format("[software]\npreset = \"{}\"\n", source.software);
  text += fmt::format(
      "[parallel]\ntp = {}\ncp = {}\npp = {}\ndp = {}\nschedule = \"{}\"\nvirtual_stages = {}\n"
      "first_stage_less_layers = {}\nlast_stage_less_layers = {}\nmicro_batch = {}\nzero = {}\n",
      z.tp, z.cp, z.pp, z.dp, z.virtual_stages > 1 ? "interleaved" : "1f1b", z.virtual_stages,
      z.ends_less_layers, z.ends_less_layers, z.micro_batch, z.zero);
  text += fmt::format("sequence_parallel = {}\nrecompute = {}\nrank_order = \"{}\"\n", step.sequence_parallel,
                      step.recompute, llama3 ? "tp-cp-pp-dp" : "tp-cp-dp-pp");
  text += fmt::format("[train]\nsequence = {}\nglobal_batch = {}\n", z.sequence, z.global_batch);
  const config::Examined examined = config::examine_run_text(text, "t.toml", {});
  EXPECT_EQ(config::to_string(examined.problems), "") << text;
  return examined.run;
}

TEST(PublishedSteps, ArePredictedWithinTheTargets) {
  for (const Source& source : sources()) {
    double sum = 0;
    for (const Step& step : source.steps) {
      const config::RunFile run = run_of(source, step);
      const double ratio = plan_of(run).step.seconds / step.seconds;
      sum += std::abs(ratio - 1);
      if (source.of_mean) continue;
      EXPECT_NEAR(ratio, 1, source.within) << source.name << ", " << run.parallel.world_size() << " GPUs, "
                                           << step.sizes.layers << " layers of " << step.sizes.hidden;
    }
    EXPECT_LT(sum / static_cast<double>(source.steps.size()), source.within) << source.name;
  }
}

}  // namespace
}  // namespace lockstep::plan
