// The run file, resolved: every key has a value. One TOML file says everything about a run; the 405B model on
// 16,384 GPUs and eight local workers differ only in values. config/schema.hpp gives each key its sentence.
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <set>
#include <string>
#include <vector>

namespace lockstep::config {

enum class Architecture { llama, gpt };
enum class ScheduleKind { gpipe, one_f_one_b, interleaved, zero_bubble_h1 };
enum class LayerSplit { even, cost };
enum class GradientScatter { chunk, micro_batch };
enum class GatheredInput { gather_again, keep };
enum class Optimizer { adamw, sgd };
enum class LearningRateSchedule { cosine, linear, wsd, constant };
enum class NonFinite { stop, skip };
enum class Topology { racks, rails };
enum class CollectiveAlgorithm { automatic, ring, tree, halving_doubling, hierarchical, direct };
enum class Dtype { bf16, fp32, fp64 };
enum class AttentionKernel { flash, scores };
enum class CrossEntropy { fused, compiled, unfused };
enum class GradientDtype { fp32, compute };

// One point of a measured curve; between points it is straight over the logarithm of `at`, beyond them flat.
struct CurvePoint {
  double at = 0;     // FLOPs or bytes of one kernel
  double value = 0;  // share of the peak

  bool operator==(const CurvePoint&) const = default;
};
using Curve = std::vector<CurvePoint>;

// A measured collective, or message.
struct TimedTransfer {
  int64_t ranks = 2;
  double bytes = 0;  // of the whole tensor
  double seconds = 0;

  bool operator==(const TimedTransfer&) const = default;
};

// Takes so many times as long as others.
struct SlowRank {
  int64_t rank = 0;
  double factor = 1;

  bool operator==(const SlowRank&) const = default;
};

struct ModelConfig {
  std::string preset;  // empty: none
  Architecture architecture = Architecture::llama;
  int64_t layers = 0;
  int64_t hidden = 0;
  int64_t ffn = 0;
  int64_t heads = 0;
  int64_t kv_heads = 0;
  int64_t vocab = 0;
  double rope_theta = 500000.0;
  double norm_eps = 1e-5;
  double init_std = 0.02;
  bool tie_embeddings = false;  // the output matrix is the embedding; a gpt model's, unless set
  int64_t positions = 0;        // learned ones, of gpt; 0: train.sequence

  int64_t head_dim() const { return hidden / heads; }

  bool operator==(const ModelConfig&) const = default;
};

// A modelled cluster. Bandwidths are bytes/s in one direction, latencies seconds.
struct ClusterConfig {
  std::string preset;  // empty: none, every figure stands in the run file
  std::string file;    // a cluster file; empty once its figures have been taken
  std::string device;  // a device preset; empty: none
  int64_t gpus = 0;
  int64_t max_gpus = 0;  // GPUs that the cluster has; 0: no limit
  int64_t gpus_per_node = 0;
  int64_t gpus_per_rack = 0;
  int64_t gpus_per_pod = 0;

  std::string gpu;                  // name of the device
  double peak_flops_bf16 = 0;       // dense, FLOP/s
  double peak_flops_fp32 = 0;       // FLOP/s
  double peak_flops_fp64 = 0;       // FLOP/s
  double memory_bytes = 0;          // capacity of one GPU
  double memory_bandwidth = 0;      // bytes/s
  double gemm_efficiency = 0;       // share of the peak that a large matrix product reaches
  double attention_efficiency = 0;  // share of the peak that fused attention reaches
  double memory_efficiency = 0;     // share of the memory bandwidth that a memory-bound kernel reaches
  double launch_seconds = 0;        // fixed cost of one kernel
  int64_t multiprocessors = 0;      // over which a product's tiles are dealt in waves; 0: no waves
  // Shares of the peak by FLOPs, or of the memory bandwidth by bytes, in place of the constants above.
  Curve gemm_curve, attention_curve, memory_curve;
  // Of kernels whose speed differs; empty: gemm_curve, memory_curve, memory_curve.
  Curve weight_gradient_curve, row_curve, exponential_curve;
  std::string measured_dtype;         // in which the curves were measured; empty: not known
  double communication_slowdown = 0;  // kernels take 1 + this while the GPU's communication goes on beside
  int64_t cores = 0;                  // that a node's worker processes share; 0: each GPU is a device
  double busy_slowdown = 0;           // kernels take 1 + this where every core of a node has a worker
  double core_switch_seconds = 0;     // of a core, when a worker that waits gives it to another
  double step_overhead = 0;           // seconds of a worker between two steps
  double nvlink_bandwidth = 0;        // inside a node, per GPU and direction
  double nvlink_latency = 0;          // per message or ring's hop, in NCCL's Simple
  double nic_bandwidth = 0;           // outside a node, per GPU and direction
  double nic_latency = 0;             // the same
  double network_efficiency = 0;      // share of a link's bandwidth that large messages reach
  double nvlink_efficiency = 0;       // the same of NVLink's; 0: network_efficiency
  Topology topology = Topology::racks;
  double switch_latency = 0;         // of each switch layer above the first, on the way up and down
  double message_overhead = 0;       // fixed cost of one collective or message
  double rack_oversubscription = 1;  // bandwidth inside a rack (or rail) over bandwidth out of it
  double pod_oversubscription = 1;   // bandwidth inside a pod over bandwidth between pods
  int64_t rack_uplinks = 0;          // equal links that flows are hashed to; 0: spread evenly
  int64_t pod_uplinks = 0;
  CollectiveAlgorithm collective_algorithm = CollectiveAlgorithm::automatic;
  bool low_latency_protocols = true;  // NCCL's protocols and tuning
  double low_latency_bandwidth = 0;   // that LL moves at most inside a node, bytes/s; 0: no limit
  // Measured times, in place of the model of links.
  std::vector<TimedTransfer> all_reduce_times, all_gather_times, reduce_scatter_times, message_times;
  double storage_bandwidth = 1e9;  // bytes/s at which a rank reads its batch
  double storage_latency = 1e-3;
  double usd_per_gpu_hour = 0;
  // Power, as cost/power.hpp adds it up. gpu_compute_watts = 0: not known.
  double gpu_compute_watts = 0;        // of one GPU while kernels run
  double gpu_communication_watts = 0;  // while it only communicates
  double gpu_idle_watts = 0;           // while it waits
  double host_watts_per_node = 0;      // all of a node but its GPUs
  double network_watts_per_gpu = 0;    // switches, and optics at both ends
  double pue = 1;                      // power at the meter over power of the equipment

  bool operator==(const ClusterConfig&) const = default;
};

struct ParallelConfig {
  int64_t tp = 1;
  int64_t cp = 1;
  int64_t pp = 1;
  int64_t dp = 1;
  ScheduleKind schedule = ScheduleKind::one_f_one_b;
  int64_t virtual_stages = 1;
  int64_t first_stage_less_layers = 0;
  int64_t last_stage_less_layers = 0;
  LayerSplit layer_split = LayerSplit::even;
  int64_t replicas = 0;     // logical data-parallel replicas; 0: dp
  int64_t micro_batch = 1;  // sequences
  bool sequence_parallel = true;
  int64_t zero = 1;
  bool reshard_after_forward = true;                           // zero = 3
  GradientScatter gradient_scatter = GradientScatter::chunk;   // zero = 2, 3
  GatheredInput gathered_input = GatheredInput::gather_again;  // with sequence parallel
  // Ops whose outputs are not kept but computed again in backward, by op family ("norm", "swiglu", "gelu",
  // "attention"); {"full"} keeps only each layer's input. Empty: keep everything.
  std::vector<std::string> recompute;
  int64_t recompute_every = 1;  // layers 0, k, 2k, ... of the model recompute; the others keep everything
  std::string rank_order = "tp-cp-pp-dp";

  int64_t world_size() const { return tp * cp * pp * dp; }
  int64_t logical_replicas() const { return replicas == 0 ? dp : replicas; }
  // Logical replicas that a physical one computes in turn, the last round perhaps not on all of them.
  int64_t rounds() const { return (logical_replicas() + dp - 1) / dp; }

  bool operator==(const ParallelConfig&) const = default;
};

struct TrainConfig {
  int64_t sequence = 128;     // tokens
  int64_t global_batch = 16;  // sequences
  int64_t steps = 100;
  int64_t tokens = 0;  // planned length of the whole training, for `plan`; 0: what the steps read
  // Batch sizes before global_batch, each "SEQUENCES:LAST_STEP", ascending.
  std::vector<std::string> batch_ramp;
  Optimizer optimizer = Optimizer::adamw;
  Dtype dtype = Dtype::bf16;
  double lr = 3e-4;
  double lr_min_ratio = 0.1;  // the rate ends at lr x this
  int64_t warmup = 20;        // steps
  LearningRateSchedule schedule = LearningRateSchedule::cosine;
  int64_t decay_steps = 0;  // of wsd: the last steps, in which the rate falls; 0: a tenth of the run
  double grad_clip = 1.0;   // global norm; 0 never clips
  double beta1 = 0.9;
  double beta2 = 0.95;
  double eps = 1e-8;
  double momentum = 0.9;  // of sgd
  double weight_decay = 0.1;
  std::vector<std::string> no_decay = {"norm"};  // parameters without weight decay: norm, embedding, output
  int64_t seed = 1;
  NonFinite nonfinite = NonFinite::stop;
  int64_t eval_interval = 0;      // steps between evaluations; 0: at the end alone
  int64_t eval_sequences = 256;   // held-out sequences scored each time; 0: all
  int64_t timeout_seconds = 60;   // longest wait of one collective or message
  int64_t trace_first_step = 10;  // first step whose spans go to trace/
  int64_t trace_steps = 3;        // 0: no trace

  bool operator==(const TrainConfig&) const = default;
};

// What a training program does with kernels and collectives, beside model and layout. The defaults are
// Lockstep's own trainer; others are modelled only.
struct SoftwareConfig {
  std::string preset;  // empty: none
  std::string file;    // empty once its keys have been taken
  AttentionKernel attention = AttentionKernel::flash;
  bool dropout = false;  // of gpt models
  CrossEntropy cross_entropy = CrossEntropy::fused;
  GradientDtype gradient_dtype = GradientDtype::fp32;
  bool overlap_gradients = true;    // reductions go on beside backward passes
  bool overlap_parameters = false;  // zero = 1, 2: gathers go on beside the forwards of the step
  bool recompute_early_stop = true;
  bool tensor_parallel_copies = false;
  double tensor_parallel_overlap = 0;   // share of the collectives' time that is hidden
  double elementwise_traffic = 1;       // bytes of memory-bound kernels over those of fused ones
  bool reduce_in_place = false;         // of gradients, zero = 1
  bool fused_weight_gradients = false;  // products add to the gradient themselves
  double loss_memory = 0;               // bytes a logit at the fullest moment; 0: the logits alone
  double memory_margin = 0.05;          // what is held besides tensors, as a share of them
  double dp_network_efficiency = 0;     // 0: cluster.network_efficiency
  double host_seconds_per_launch = 0;
  double host_seconds_per_micro_batch = 0;  // of all its passes through the pipeline together
  double host_skew = 0;                     // where tp ranks fill more than half a node

  bool operator==(const SoftwareConfig&) const = default;
};

struct DataConfig {
  std::string text;                   // folder of .txt documents; absolute; empty: none
  std::vector<std::string> held_out;  // names (without .txt) of documents kept for evaluation
  std::string tokenizer = "byte";
  bool document_mask = false;  // no attention across documents
  bool prefetch = true;        // a batch is read while the step before it runs

  bool operator==(const DataConfig&) const = default;
};

struct CheckpointConfig {
  int64_t interval = 0;  // steps; 0 never

  bool operator==(const CheckpointConfig&) const = default;
};

struct SimulateConfig {
  bool jitter = true;
  double op_jitter = 0.02;         // relative standard deviation of one op's time
  double rank_jitter = 0.01;       // relative standard deviation of a rank's speed
  double tail_probability = 1e-6;  // that an op is a straggler
  double tail_factor = 5;          // and takes so many times as long
  double garbage_collection_seconds = 0;
  int64_t garbage_collection_interval = 1000;  // steps
  double retransmit_probability = 0;           // of a transfer between nodes
  double retransmit_seconds = 0;
  double throttled_nodes = 0;  // share of the nodes
  double throttle_factor = 1;
  double daily_heat = 0;             // kernels take up to 1 + this at the hottest hour
  double hour = 15;                  // of the day
  std::vector<SlowRank> slow;        // kernels
  std::vector<SlowRank> slow_links;  // a rank's link out of its node
  int64_t seed = 1;

  bool operator==(const SimulateConfig&) const = default;
};

// Where a run came from, for messages. No part of the run: two runs are equal whatever stands here.
struct Origin {
  std::string file;
  std::map<std::string, std::string> where;  // "table.key" to "file:line", "--set ..." or "preset ..."
  std::vector<std::string> text_places;      // where a relative data.text was looked for, in order
  std::vector<std::string> notes;            // what was given and has no effect, one line each

  bool operator==(const Origin&) const { return true; }
};

struct RunFile {
  std::string name;
  ModelConfig model;
  ClusterConfig cluster;
  ParallelConfig parallel;
  TrainConfig train;
  SoftwareConfig software;
  DataConfig data;
  CheckpointConfig checkpoint;
  SimulateConfig simulate;
  Origin origin;

  bool operator==(const RunFile&) const = default;

  // Micro-batches of one logical replica in one step of global_batch sequences.
  int64_t replica_micro_batches() const {
    return train.global_batch / (parallel.logical_replicas() * parallel.micro_batch);
  }
  // Micro-batches that one worker computes in such a step: of all its logical replicas.
  int64_t micro_batches() const { return replica_micro_batches() * parallel.rounds(); }
};

// Reads a run file, applies presets and `overrides` ("table.key=value"; a value that is not valid TOML is a
// string), fills defaults and checks every rule. Throws UsageError with all problems at once, each with file,
// line, key, value, rule and the nearest value that works. Paths inside come back absolute: a relative
// data.text is looked for in the run file's folder, the three folders above it and the current one, and taken
// from the first that has it (from the run file's folder when none does: only check_for_training needs it to
// exist). `unchosen`: keys whose values are still to be chosen, as in config/load.hpp.
RunFile load_run_file(const std::filesystem::path& file, const std::vector<std::string>& overrides,
                      const std::set<std::string>& unchosen = {});

inline constexpr int64_t max_local_workers = 256;

// The rules that only `train` has: a llama model, the local cluster and at most max_local_workers on it,
// nothing in `software` that the trainer does not do, a text that can be read. Throws UsageError with all
// problems at once.
void check_for_training(const RunFile& run);

// The resolved file as TOML: every key with its value, presets expanded; loading it again gives the same
// RunFile.
std::string to_toml(const RunFile& run);

const char* to_string(Architecture);
const char* to_string(ScheduleKind);
const char* to_string(Dtype);
const char* to_string(AttentionKernel);
const char* to_string(CrossEntropy);
const char* to_string(GradientDtype);
const char* to_string(LayerSplit);
const char* to_string(GradientScatter);
const char* to_string(GatheredInput);
const char* to_string(Optimizer);
const char* to_string(LearningRateSchedule);
const char* to_string(NonFinite);
const char* to_string(Topology);
const char* to_string(CollectiveAlgorithm);

}  // namespace lockstep::config
