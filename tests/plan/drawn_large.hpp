// Llama models on H100s in layouts as people use them, drawn at random: everything a run file can choose of
// the parallelism.
#pragma once

#include <random>
#include <vector>

#include "config/rules.hpp"
#include "config/run_file.hpp"

namespace lockstep::tests {

class DrawnLarge {
 public:
  explicit DrawnLarge(unsigned seed) : engine_(seed) {}

  // A valid run of at most `most` GPUs.
  config::RunFile run(int64_t most = 4096) {
    for (;;) {
      config::RunFile run = any_run();
      std::vector<config::Problem> problems;
      config::check_rules(run, {}, problems);
      if (problems.empty() && run.parallel.world_size() <= most) return run;
    }
  }

  void change_software(config::RunFile& run) {
    config::SoftwareConfig& s = run.software;
    s.host_seconds_per_launch = static_cast<double>(one_of({0, 10, 50})) * 1e-6;
    s.host_seconds_per_micro_batch = static_cast<double>(one_of({0, 10})) * 1e-3;
    const bool whole = run.parallel.zero <= 1 && run.parallel.replicas <= run.parallel.dp;
    s.overlap_gradients = !whole || one_of({0, 1}) == 1;
    s.overlap_parameters = one_of({0, 1}) == 1;
    s.tensor_parallel_overlap = one_of({0, 1}) == 1 ? 0.5 : 0;
    s.dp_network_efficiency = one_of({0, 1}) == 1 ? 0.3 : 0;
    if (one_of({0, 1}) == 0) return;
    run.model.architecture = config::Architecture::gpt;
    run.model.positions = run.train.sequence;
    s.attention = config::AttentionKernel::scores;
    s.dropout = true;
  }

 private:
  int64_t one_of(std::initializer_list<int64_t> v) { return v.begin()[engine_() % v.size()]; }

  void draw_model(config::RunFile& run) {
    config::ModelConfig& m = run.model;
    const int64_t size = one_of({0, 1, 2, 3});  // as 1B, 7B, 70B, 405B
    if (size < 3) {
      m.layers = size == 0 ? 16 : size == 1 ? 32 : 80;
      m.hidden = size == 0 ? 2048 : size == 1 ? 4096 : 8192;
      m.ffn = m.hidden * 7 / 2;
      m.heads = m.hidden / 128;
      m.kv_heads = one_of({4, 8, 8});
      m.tie_embeddings = one_of({0, 0, 0, 1}) == 1;
    }
    run.parallel.first_stage_less_layers = run.parallel.last_stage_less_layers = size == 3 ? 1 : 0;
  }

  config::RunFile any_run() {
    config::RunFile run = large_;
    draw_model(run);
    config::ParallelConfig& p = run.parallel;
    p.tp = one_of({1, 2, 4, 8});
    p.cp = one_of({1, 1, 1, 2, 4});
    p.pp = one_of({1, 2, 4, 8, 16});
    p.dp = one_of({1, 2, 4, 8, 16, 32, 64});
    p.virtual_stages = one_of({1, 1, 2, 4, 8});
    p.schedule = p.virtual_stages > 1 ? config::ScheduleKind::interleaved
                                      : static_cast<config::ScheduleKind>(one_of({0, 1, 3}));
    p.replicas = p.dp * one_of({1, 1, 1, 1, 1, 2});
    p.sequence_parallel = one_of({0, 1, 1}) == 1;
    p.zero = one_of({0, 1, 2, 3});
    p.reshard_after_forward = one_of({0, 1, 1}) == 1;
    if (p.zero >= 2 && one_of({0, 1, 2}) == 0) p.gradient_scatter = config::GradientScatter::micro_batch;
    const int64_t recompute = one_of({0, 1, 2, 3});
    if (recompute == 0) p.recompute = {};
    if (recompute == 1) p.recompute = {"full"};
    if (recompute == 2) p.recompute = {"attention"};
    p.micro_batch = one_of({1, 2, 4});
    run.train.global_batch = p.replicas * p.micro_batch * one_of({2, 4, 8, 12, 16, 32, 64});
    run.train.sequence = one_of({2048, 4096, 8192});
    run.cluster.gpus = p.world_size();
    return run;
  }

  std::mt19937 engine_;
  config::RunFile large_ = config::load_run_file(LOCKSTEP_SOURCE_DIR "/configs/llama3-405b-16k.toml", {});
};

}  // namespace lockstep::tests
