// Run files drawn at random over the schema: mostly ones that hold together, some that break a rule.
#pragma once

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <random>
#include <string>
#include <vector>

#include "config/load.hpp"
#include "config/presets.hpp"

namespace lockstep::sim::test {

// The file that overrides are applied to; valid by itself.
inline const char* const plain_file =
    "name = \"drawn\"\n[model]\nlayers = 1\nhidden = 64\nffn = 64\nheads = 1\nkv_heads = 1\nvocab = 256\n"
    "[cluster]\npreset = \"h100-24k\"\ngpus = 1\n[train]\nsequence = 16\nglobal_batch = 1\n";

inline config::Examined examine(const std::vector<std::string>& overrides) {
  return config::examine_run_text(plain_file, "drawn.toml", overrides);
}

class RunFileDrawer {
 public:
  explicit RunFileDrawer(unsigned seed) : random_(seed) {}

  // "table.key=value", as --set takes them.
  std::vector<std::string> draw() {
    out_.clear();
    const int64_t cp = one_of({1, 1, 1, 2, 3}), tp = one_of({1, 2, 2, 4, 8}), pp = pick(1, 6);
    const int64_t dp = std::min<int64_t>(pick(1, 4), std::max<int64_t>(64 / (tp * cp * pp), 1));
    set("parallel.tp", tp);
    set("parallel.cp", cp);
    set("parallel.pp", pp);
    set("parallel.dp", dp);
    set("cluster.gpus", tp * cp * pp * dp);
    draw_cut(pp, dp);
    draw_model(tp, pp);
    draw_memory(tp);
    set("train.sequence", (cp > 1 ? 2 : 1) * cp * tp * one_of({1, 3, 64, 512}));
    set("train.dtype", one_of({0, 0, 1, 2}) == 0 ? "\"bf16\""
                       : one_of({0, 1}) == 0     ? "\"fp32\""
                                                 : "\"fp64\"");
    if (chance(3)) set("train.optimizer", "\"sgd\"");
    if (chance(3)) set("data.document_mask", "true");
    draw_cluster();
    draw_imperfection(tp * cp * pp * dp);
    if (chance(8)) {
      const std::vector<const char*> orders = {"\"tp-pp-cp-dp\"", "\"pp-cp-dp-tp\"", "\"dp-tp-cp-pp\""};
      set("parallel.rank_order", orders[random_() % orders.size()]);
    }
    if (chance(4)) spoil();
    return out_;
  }

  int64_t pick(int64_t low, int64_t high) {
    return std::uniform_int_distribution<int64_t>(low, high)(random_);
  }
  int64_t one_of(std::initializer_list<int64_t> values) { return values.begin()[random_() % values.size()]; }
  bool chance(unsigned one_in) { return random_() % one_in == 0; }
  // Evenly over the magnitudes.
  double over(double low, double high) {
    return low * std::pow(high / low, std::uniform_real_distribution<double>(0, 1)(random_));
  }

 private:
  void set(const std::string& key, const std::string& value) { out_.push_back(key + "=" + value); }
  void set(const std::string& key, const char* value) { set(key, std::string(value)); }
  void set(const std::string& key, int64_t value) { set(key, std::to_string(value)); }
  void set(const std::string& key, double value) { set(key, fmt::format("{:.6e}", value)); }

  void draw_cut(int64_t pp, int64_t dp) {
    const std::vector<const char*> schedules = {"\"gpipe\"", "\"1f1b\"", "\"interleaved\"", "\"zb-h1\""};
    const auto kind = static_cast<size_t>(pick(0, 3));
    chunks_ = kind == 2 ? pick(1, 4) : 1;
    const int64_t replicas = dp + one_of({0, 0, 0, 1, 3}), micro_batch = one_of({1, 1, 2, 3});
    set("parallel.schedule", schedules[kind]);
    set("parallel.virtual_stages", chunks_);
    set("parallel.replicas", replicas);
    set("parallel.micro_batch", micro_batch);
    set("train.global_batch", replicas * micro_batch * pick(1, 2 * pp + 3));
  }

  void draw_model(int64_t tp, int64_t pp) {
    const int64_t heads = tp * pick(1, 3);
    int64_t kv_heads = one_of({1, tp, heads});
    set("model.heads", heads);
    set("model.kv_heads", kv_heads);
    set("model.hidden", heads * one_of({2, 6, 64, 128}));
    set("model.ffn", tp * one_of({1, 7, 100, 4096}));
    set("model.vocab", one_of({256, 257, 1000, 128256}));
    if (chance(4)) set("model.tie_embeddings", "true");
    const int64_t each = pick(1, 3);
    if (chance(3)) {
      set("parallel.layer_split", "\"cost\"");
      set("model.layers", pick(1, 9));
    } else {
      const bool uneven = pp * chunks_ > 1 && chance(3);
      const int64_t first = uneven ? pick(0, each) : 0, last = uneven ? pick(0, each - 1) : 0;
      set("parallel.first_stage_less_layers", first);
      set("parallel.last_stage_less_layers", last);
      set("model.layers", pp * chunks_ * each - first - last);
    }
  }

  void draw_memory(int64_t tp) {
    const int64_t zero = pick(0, 3);
    set("parallel.zero", zero);
    if (zero >= 2 && chance(2)) set("parallel.gradient_scatter", "\"micro_batch\"");
    if (zero == 3 && chance(2)) set("parallel.reshard_after_forward", "false");
    const bool sequence_parallel = !chance(3);
    set("parallel.sequence_parallel", sequence_parallel ? "true" : "false");
    const bool keep = tp > 1 && sequence_parallel && chance(4);
    if (keep) set("parallel.gathered_input", "\"keep\"");
    if (chance(2)) return;
    set("parallel.recompute", chance(2) ? "\"full\"" : keep ? "[\"swiglu\"]" : "[\"norm\", \"attention\"]");
    set("parallel.recompute_every", pick(1, 3));
  }

  void draw_cluster() {
    if (chance(3)) {
      const std::vector<std::string> names = config::preset_names(config::PresetKind::cluster);
      set("cluster.preset", "\"" + names[random_() % names.size()] + "\"");
    } else {
      const int64_t node = one_of({1, 1, 2, 3, 4, 8}), rack = node * pick(1, 3),
                    pod = rack * one_of({1, 2, 5});
      set("cluster.gpus_per_node", node);
      set("cluster.gpus_per_rack", rack);
      set("cluster.gpus_per_pod", pod);
    }
    if (chance(2)) return;
    for (const char* key : {"peak_flops_bf16", "peak_flops_fp32", "peak_flops_fp64"}) {
      set(std::string("cluster.") + key, over(1e9, 1e16));
    }
    for (const char* key : {"memory_bandwidth", "nvlink_bandwidth", "nic_bandwidth", "storage_bandwidth"}) {
      set(std::string("cluster.") + key, over(1e6, 1e13));
    }
    for (const char* key :
         {"gemm_efficiency", "attention_efficiency", "memory_efficiency", "network_efficiency"}) {
      set(std::string("cluster.") + key, over(1e-2, 1));
    }
    for (const char* key : {"launch_seconds", "nvlink_latency", "nic_latency", "switch_latency",
                            "message_overhead", "storage_latency"}) {
      set(std::string("cluster.") + key, chance(3) ? 0.0 : over(1e-7, 1e-2));
    }
    for (const char* key : {"rack_oversubscription", "pod_oversubscription"}) {
      set(std::string("cluster.") + key, chance(2) ? 1.0 : over(1, 100));
    }
    if (chance(3)) set("cluster.topology", "\"rails\"");
    draw_network();
  }

  void draw_network() {
    if (chance(2)) {
      const std::vector<const char*> names = {"\"ring\"", "\"tree\"", "\"halving_doubling\"",
                                              "\"hierarchical\"", "\"direct\""};
      set("cluster.collective_algorithm", names[random_() % names.size()]);
    }
    set("cluster.low_latency_protocols", chance(2) ? "true" : "false");
    if (chance(3)) set("cluster.rack_uplinks", pick(0, 16));
    if (chance(3)) set("cluster.pod_uplinks", pick(0, 16));
    if (chance(4)) set("cluster.multiprocessors", pick(0, 160));
    if (chance(4)) set("cluster.cores", pick(1, 64));
    if (chance(4)) {
      set("cluster.gemm_curve", fmt::format("[{{ flops = 1e6, efficiency = {:.4f} }}, {{ flops = 1e12, "
                                            "efficiency = {:.4f} }}]",
                                            over(1e-3, 0.1), over(0.1, 1)));
    }
  }

  void draw_imperfection(int64_t world) {
    set("simulate.jitter", chance(3) ? "false" : "true");
    set("simulate.seed", pick(0, 1 << 30));
    set("simulate.op_jitter", chance(3) ? 0.0 : over(1e-3, 0.9));
    set("simulate.rank_jitter", chance(3) ? 0.0 : over(1e-3, 0.9));
    if (chance(3)) {
      set("simulate.tail_probability", over(1e-6, 0.5));
      set("simulate.tail_factor", over(1, 100));
    }
    if (chance(4)) {
      set("simulate.garbage_collection_seconds", over(1e-4, 1));
      set("simulate.garbage_collection_interval", pick(1, 3));
    }
    if (chance(4)) {
      set("simulate.retransmit_probability", over(1e-6, 0.5));
      set("simulate.retransmit_seconds", over(1e-6, 1e-1));
    }
    if (chance(4)) {
      set("simulate.throttled_nodes", over(1e-2, 1));
      set("simulate.throttle_factor", over(1, 3));
    }
    if (chance(4)) set("simulate.daily_heat", over(1e-3, 1));
    if (chance(4)) {
      set("simulate.slow_links",
          fmt::format("[{{ rank = {}, factor = {:.3f} }}]", pick(0, world - 1), over(1, 50)));
    }
    if (chance(4)) {
      set("simulate.slow",
          fmt::format("[{{ rank = {}, factor = {:.3f} }}]", pick(0, world - 1), over(0.5, 50)));
    }
  }

  // One figure that need not fit the others.
  void spoil() {
    std::string& entry = out_[random_() % out_.size()];
    entry = entry.substr(0, entry.find('=')) + "=" + std::to_string(one_of({-1, 0, 1, 2, 3, 5, 7, 12}));
  }

  std::mt19937_64 random_;
  std::vector<std::string> out_;
  int64_t chunks_ = 1;
};

}  // namespace lockstep::sim::test
