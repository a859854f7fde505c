// Run files drawn at random: small, valid, and as uneven as the rules allow.
#pragma once

#include <algorithm>
#include <array>
#include <random>

#include "config/rules.hpp"
#include "parallel/sample_run.hpp"
#include "sim/simulate_step.hpp"

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
  c.storage_latency = 0;  // small steps are soon over: no batch holds them up
  c.storage_bandwidth = 1e12;
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

  double share() { return static_cast<double>(engine_() % 1000) / 1000; }

  // Makes a run's network crowded and odd: nodes of few GPUs, slow links, another order of ranks.
  void crowd(config::RunFile& run) {
    constexpr std::array orders = {"tp-cp-pp-dp", "dp-tp-cp-pp", "pp-dp-cp-tp", "cp-pp-tp-dp", "dp-pp-tp-cp"};
    config::ClusterConfig& c = run.cluster;
    run.parallel.rank_order = orders[engine_() % orders.size()];
    c.gpus_per_node = one_of({1, 2, 4, 8});
    c.gpus_per_rack = c.gpus_per_node * one_of({1, 2});
    c.gpus_per_pod = c.gpus_per_rack * one_of({1, 2, 8});
    c.topology = static_cast<config::Topology>(one_of({0, 1}));
    c.rack_oversubscription = static_cast<double>(one_of({1, 2}));
    c.rack_uplinks = one_of({0, 0, 3});
    c.pod_uplinks = one_of({0, 0, 2});
    c.communication_slowdown = one_of({0, 1}) == 1 ? share() / 2 : 0;
    c.nic_bandwidth = static_cast<double>(one_of({5'000'000'000, 200'000'000, 20'000'000}));
    c.message_overhead = one_of({0, 1}) == 1 ? 1e-5 : 0;
  }

  void change_software(config::RunFile& run) {
    config::SoftwareConfig& s = run.software;
    s.host_seconds_per_launch = static_cast<double>(one_of({0, 1, 5, 20})) * 1e-6;
    s.host_seconds_per_micro_batch = static_cast<double>(one_of({0, 1, 4})) * 1e-4;
    s.host_skew = share();
    const bool whole = run.parallel.zero <= 1 && run.parallel.replicas <= run.parallel.dp;
    s.overlap_gradients = !whole || one_of({0, 1}) == 1;
    s.overlap_parameters = one_of({0, 1}) == 1;
    s.tensor_parallel_overlap = one_of({0, 1}) == 1 ? share() : 0;
    s.dp_network_efficiency = one_of({0, 1}) == 1 ? 0.2 : 0;
    s.tensor_parallel_copies = one_of({0, 1}) == 1;
    s.attention = static_cast<config::AttentionKernel>(one_of({0, 1}));
    s.gradient_dtype = static_cast<config::GradientDtype>(one_of({0, 1}));
    s.cross_entropy = static_cast<config::CrossEntropy>(one_of({0, 1, 2}));
    s.dropout = one_of({0, 1}) == 1;
    if (one_of({0, 1}) == 0 || !run.parallel.recompute.empty()) return;
    run.model.architecture = config::Architecture::gpt;
    run.model.positions = run.train.sequence;
  }

  // Everything that makes ranks differ.
  void disturb(sim::StepOptions& options, int64_t ranks) {
    options.op_jitter = 0.3 * share();
    options.rank_jitter = 0.1;
    options.tail_probability = 0.02;
    options.tail_factor = 4;
    options.garbage_collection_seconds = one_of({0, 1}) == 1 ? 1e-3 : 0;
    options.garbage_collection_interval = one_of({1, 2, 5});
    options.retransmit_probability = one_of({0, 0, 1}) == 1 ? 0.05 : 0;
    options.retransmit_seconds = 2e-4;
    options.throttled_nodes = 0.3;
    options.throttle_factor = 1.4;
    options.daily_heat = 0.02;
    options.hour = 24 * share();
    options.step = static_cast<int>(engine_() % 10);
    options.slow = {{one_of({0, ranks - 1}), 1.5}};
    options.slow_links = {{ranks / 2, 3.0}};
  }

  // A valid run.
  config::RunFile run() {
    for (;;) {
      config::RunFile run = any_run();
      std::vector<config::Problem> problems;
      config::check_rules(run, {}, problems);
      if (problems.empty()) return run;
    }
  }

 private:
  config::RunFile any_run() {
    const int64_t virtual_stages = one_of({1, 1, 2, 3});
    config::RunFile run =
        sample_run(one_of({1, 2, 4}), one_of({1, 2, 3, 4, 5}), one_of({1, 2, 3, 4}), virtual_stages, 1);
    run.model.hidden = one_of({64, 256, 512});
    run.model.ffn = one_of({96, 512, 1024});
    run.model.kv_heads = one_of({1, 2, 4, 8});
    run.model.vocab = one_of({256, 251, 3});
    run.model.tie_embeddings = one_of({0, 0, 1}) == 1;
    run.data.document_mask = one_of({0, 1}) == 1;
    draw_cut(run);
    draw_memory_choices(run.parallel);
    run.train.sequence = one_of({1, 4, 16}) * 8 * run.parallel.tp * run.parallel.cp;
    run.train.global_batch =
        run.parallel.replicas * run.parallel.micro_batch * one_of({1, 2, 3, 4, 5, 8, 12});
    run.cluster = small_cluster(one_of({2, 4, 6, 64}), one_of({12, 12, 192}));
    if (run.cluster.gpus_per_pod % run.cluster.gpus_per_node != 0) run.cluster.gpus_per_pod = 192;
    // Slow enough at times that messages and reductions queue up behind one another.
    run.cluster.nic_bandwidth = static_cast<double>(one_of({20'000'000'000, 200'000'000}));
    run.cluster.gpus = run.parallel.world_size();
    run.simulate.seed = static_cast<int64_t>(engine_());
    return run;
  }

  void draw_cut(config::RunFile& run) {
    config::ParallelConfig& p = run.parallel;
    if (p.virtual_stages == 1) {
      p.schedule = static_cast<config::ScheduleKind>(one_of({0, 1, 2, 3, 3}));
    }
    p.cp = one_of({1, 1, 2, 3});
    p.replicas = p.dp + one_of({0, 0, 1, 5});
    p.micro_batch = one_of({1, 2});
    const int64_t each = one_of({1, 2, 3});
    run.model.layers = each * p.pp * p.virtual_stages;
    if (one_of({0, 1}) == 1) {
      p.layer_split = config::LayerSplit::cost;
      run.model.layers = one_of({1, 4, 7});
    } else if (p.pp * p.virtual_stages > 1) {
      p.first_stage_less_layers = one_of({0, 1, each});
      p.last_stage_less_layers = one_of({0, 1, each});
      run.model.layers -= p.first_stage_less_layers + p.last_stage_less_layers;
    }
  }

  void draw_memory_choices(config::ParallelConfig& p) {
    p.sequence_parallel = one_of({0, 1, 1}) == 1;
    p.zero = one_of({0, 1, 2, 3, 3});
    p.reshard_after_forward = one_of({0, 1, 1}) == 1;
    if (p.zero >= 2 && one_of({0, 1}) == 1) p.gradient_scatter = config::GradientScatter::micro_batch;
    if (one_of({0, 1}) == 1) p.recompute = {"norm", "swiglu", "attention"};
    if (one_of({0, 0, 0, 1}) == 1) p.recompute = {"full"};
    if (!p.recompute.empty()) p.recompute_every = one_of({1, 2});
    if (one_of({0, 0, 1}) == 1) p.gathered_input = config::GatheredInput::keep;
  }

  std::mt19937 engine_;
};

}  // namespace lockstep::tests
