// Run files drawn at random: small, valid, and as uneven as the rules allow.
#pragma once

#include <algorithm>
#include <random>

#include "parallel/sample_run.hpp"

namespace lockstep::tests {

// A cluster with small nodes and pods, so that small meshes leave both.
inline config::ClusterConfig small_cluster(int64_t gpus_per_node, int64_t gpus_per_pod) {
  config::ClusterConfig c;
  c.gpus_per_node = gpus_per_node;
  c.gpus_per_rack = gpus_per_node;
  c.gpus_per_pod = gpus_per_pod;
  c.gpu = "test";
  c.peak_flops_bf16 = 100e12;
  c.peak_flops_fp32 = 50e12;
  c.peak_flops_fp64 = 25e12;
  c.memory_bytes = 80e9;
  c.memory_bandwidth = 1e12;
  c.gemm_efficiency = 0.7;
  c.attention_efficiency = 0.5;
  c.memory_efficiency = 0.8;
  c.launch_seconds = 1e-6;
  c.nvlink_bandwidth = 100e9;
  c.nvlink_latency = 1e-6;
  c.nic_bandwidth = 20e9;
  c.nic_latency = 3e-6;
  c.network_efficiency = 0.9;
  c.pod_oversubscription = 5;
  c.usd_per_gpu_hour = 2;
  return c;
}

class Drawn {
 public:
  explicit Drawn(unsigned seed) : engine_(seed) {}

  int64_t one_of(std::initializer_list<int64_t> values) { return values.begin()[engine_() % values.size()]; }

  config::RunFile run() {
    const int64_t tp = one_of({1, 2, 4});
    const int64_t pp = one_of({1, 2, 3, 4, 5});
    const int64_t dp = one_of({1, 2, 3, 4});
    const int64_t virtual_stages = pp > 1 ? one_of({1, 1, 2, 3}) : 1;
    const int64_t micro_batches = one_of({1, 2, 3, 4, 5, 8, 12});
    config::RunFile run = sample_run(tp, pp, dp, virtual_stages, micro_batches);
    if (virtual_stages == 1 && one_of({0, 1}) == 1) run.parallel.schedule = config::ScheduleKind::gpipe;
    const int64_t each = one_of({1, 2, 3});
    run.parallel.first_stage_less_layers = one_of({0, 1, each});
    run.parallel.last_stage_less_layers = one_of({0, 1, each});
    if (pp * virtual_stages == 1) {
      run.parallel.first_stage_less_layers = run.parallel.last_stage_less_layers = 0;
    }
    run.parallel.first_stage_less_layers = std::min(run.parallel.first_stage_less_layers, each);
    run.parallel.last_stage_less_layers = std::min(run.parallel.last_stage_less_layers, each);
    run.model.layers = each * pp * virtual_stages - run.parallel.first_stage_less_layers -
                       run.parallel.last_stage_less_layers;
    if (run.model.layers < 1) return this->run();
    run.model.hidden = one_of({64, 256, 512});
    run.model.ffn = one_of({96, 512, 1024});
    run.parallel.sequence_parallel = one_of({0, 1}) == 1;
    run.parallel.micro_batch = one_of({1, 2});
    run.train.global_batch *= run.parallel.micro_batch;
    run.train.sequence = one_of({32, 128, 512});
    if (one_of({0, 1}) == 1) run.parallel.recompute = {"norm", "swiglu", "attention"};
    if (one_of({0, 0, 0, 1}) == 1) run.parallel.recompute = {"full"};
    run.cluster = small_cluster(one_of({2, 4, 6, 64}), one_of({12, 12, 192}));
    if (run.cluster.gpus_per_pod % run.cluster.gpus_per_node != 0) run.cluster.gpus_per_pod = 192;
    // Slow enough at times that messages and reductions queue up behind one another.
    run.cluster.nic_bandwidth = static_cast<double>(one_of({20'000'000'000, 200'000'000}));
    run.cluster.gpus = run.parallel.world_size();
    run.simulate.seed = static_cast<int64_t>(engine_());
    return run;
  }

 private:
  std::mt19937 engine_;
};

}  // namespace lockstep::tests
