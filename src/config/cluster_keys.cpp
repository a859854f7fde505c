// The keys of [cluster].
#include "config/key_table.hpp"
#include "config/presets.hpp"

namespace lockstep::config {

std::vector<Key> cluster_keys() {
  return {
      KEY(cluster, preset,
          "A known cluster whose figures hold where no key beside it says otherwise; \"\" is none.", optional,
          {.words = preset_names(PresetKind::cluster), .may_be_empty = true}),
      KEY(cluster, file,
          "Path of a file with a [cluster] table, whose figures hold where no key says otherwise; \"\" is "
          "none.",
          optional, {.may_be_empty = true}),
      KEY(cluster, device, "A known device, whose figures hold where no key says otherwise; \"\" is none.",
          optional, {.words = preset_names(PresetKind::device), .may_be_empty = true}),
      KEY(cluster, gpus, "GPUs of the run, or worker processes on a local cluster: tp x cp x pp x dp.",
          required, gpu_count),
      KEY(cluster, max_gpus, "GPUs that the cluster has; 0 for no limit.", optional,
          {.low = 0, .high = 1 << 28}),
      KEY(cluster, gpus_per_node, "GPUs that share NVLink.", or_preset, gpu_count),
      KEY(cluster, gpus_per_rack, "GPUs in one rack.", or_preset, gpu_count),
      KEY(cluster, gpus_per_pod,
          "GPUs below one pod's switches; at full bandwidth to each other unless rack_oversubscription is "
          "above 1.",
          or_preset, gpu_count),
      KEY(cluster, gpu, "Name of the device.", or_preset, {.printable = true}),
      KEY(cluster, peak_flops_bf16, "Dense bf16 peak of one GPU, FLOP/s.", or_preset, rate),
      KEY(cluster, peak_flops_fp32, "fp32 peak of one GPU, FLOP/s.", or_preset, rate),
      KEY(cluster, peak_flops_fp64, "fp64 peak of one GPU, FLOP/s.", or_preset, rate),
      KEY(cluster, memory_bytes, "Memory of one GPU, bytes.", or_preset, capacity),
      KEY(cluster, memory_bandwidth, "Memory bandwidth of one GPU, bytes/s.", or_preset, rate),
      KEY(cluster, gemm_efficiency, "Share of the peak that a large matrix product reaches.", or_preset,
          share),
      KEY(cluster, attention_efficiency, "Share of the peak that fused attention reaches.", or_preset, share),
      KEY(cluster, memory_efficiency, "Share of the memory bandwidth that a memory-bound kernel reaches.",
          or_preset, share),
      KEY(cluster, launch_seconds, "Fixed cost of one kernel, seconds.", or_preset, seconds),
      KEY(cluster, multiprocessors,
          "Multiprocessors of one GPU, over which a matrix product's tiles are dealt in waves; 0 leaves "
          "waves "
          "out.",
          optional, {.low = 0, .high = 1 << 16}),
      KEY(cluster, gemm_curve,
          "Share of the peak that a matrix product reaches, by its FLOPs; empty: gemm_efficiency for all.",
          optional, by_size("flops")),
      KEY(cluster, attention_curve,
          "Share of the peak that fused attention reaches, by its FLOPs; empty: attention_efficiency for "
          "all.",
          optional, by_size("flops")),
      KEY(cluster, memory_curve,
          "Share of the memory bandwidth that a memory-bound kernel reaches, by its bytes; empty: "
          "memory_efficiency for all.",
          optional, by_size("bytes")),
      KEY(cluster, weight_gradient_curve,
          "As gemm_curve, of products that are added to a weight's gradient; empty: gemm_curve.", optional,
          by_size("flops")),
      KEY(cluster, row_curve, "As memory_curve, of norms and rotary positions; empty: memory_curve.",
          optional, by_size("bytes")),
      KEY(cluster, exponential_curve,
          "As memory_curve, of kernels with an exponential for each element (SwiGLU, loss); empty: "
          "memory_curve.",
          optional, by_size("bytes")),
      KEY(cluster, measured_dtype,
          "Type of compute in which the curves were measured, as `calibrate` says it; \"\" is not known.",
          optional, {.words = {"bf16", "fp32", "fp64"}, .may_be_empty = true}),
      KEY(cluster, communication_slowdown,
          "How much longer, as a share, kernels take while the GPU communicates beside them; `plan` leaves "
          "it out.",
          optional, {.low = 0, .high = 10}),
      KEY(cluster, cores,
          "Processor cores that the GPUs of a node share when they are worker processes; 0: each GPU is a "
          "device.",
          optional, {.low = 0, .high = 1 << 16}),
      KEY(cluster, busy_slowdown,
          "How much longer, as a share, kernels take where every core of a node has a worker than where one "
          "has.",
          optional, {.low = 0, .high = 10}),
      KEY(cluster, core_switch_seconds,
          "What it costs a core, in seconds, when a worker that waits gives it to another.", optional,
          seconds),
      KEY(cluster, step_overhead, "What a worker does between two steps, seconds.", optional, seconds),
      KEY(cluster, nvlink_bandwidth, "Bandwidth inside a node, per GPU and direction, bytes/s.", or_preset,
          rate),
      KEY(cluster, nvlink_latency,
          "Latency inside a node of a message, or of a ring's hop in NCCL's Simple, seconds.", or_preset,
          seconds),
      KEY(cluster, nic_bandwidth, "Bandwidth out of a node, per GPU and direction, bytes/s.", or_preset,
          rate),
      KEY(cluster, nic_latency,
          "Latency between nodes of a message, or of a ring's hop in NCCL's Simple, seconds.", or_preset,
          seconds),
      KEY(cluster, network_efficiency,
          "Share of a link's bandwidth that large messages reach; of NVLink's only where nvlink_efficiency "
          "is 0.",
          or_preset, share),
      KEY(cluster, nvlink_efficiency,
          "Share of NVLink's bandwidth that large messages reach; 0: network_efficiency.", optional,
          {.low = 0, .high = 1}),
      KEY(cluster, topology,
          "What a first switch joins: the nodes of a rack (\"racks\"), or the GPUs of a pod that have the "
          "same "
          "place in their node (\"rails\").",
          optional, {.words = {"racks", "rails"}}),
      KEY(cluster, switch_latency,
          "Latency of a switch in each layer above the first, seconds; it counts on the way up and on the "
          "way down.",
          optional, seconds),
      KEY(cluster, message_overhead, "Fixed cost of a message, or of a collective in NCCL's Simple, seconds.",
          optional, seconds),
      KEY(cluster, rack_oversubscription, "Bandwidth below a first switch over bandwidth above it.", optional,
          {.low = 1, .high = 1e6}),
      KEY(cluster, pod_oversubscription, "Bandwidth inside a pod over bandwidth between pods.", optional,
          {.low = 1, .high = 1e6}),
      KEY(cluster, rack_uplinks,
          "Equal links above a first switch, to which flows are hashed; 0 spreads them evenly.", optional,
          uplinks),
      KEY(cluster, pod_uplinks, "Equal links above a pod, to which flows are hashed; 0 spreads them evenly.",
          optional, uplinks),
      KEY(cluster, collective_algorithm,
          "Algorithm of collectives, a ring where the named one does not exist for a collective or its "
          "ranks; \"auto\" takes the faster of ring and tree for an all-reduce and rings for all else.",
          optional, {.words = {"auto", "ring", "tree", "halving_doubling", "hierarchical", "direct"}}),
      KEY(cluster, low_latency_protocols,
          "Whether collectives are NCCL's: beside Simple its protocols LL and LL128, which trade bandwidth "
          "for latency, with the latencies, limits and corrections of its tuning model; else one protocol, "
          "priced from the links alone.",
          optional),
      KEY(cluster, low_latency_bandwidth,
          "Most that NCCL's LL moves inside a node, bytes/s of bus bandwidth; 0: half of the links' "
          "bandwidth.",
          optional, not_negative),
      KEY(cluster, all_reduce_times,
          "Measured all-reduces, in place of the model of links; between sizes by interpolation.", optional,
          timed_collectives),
      KEY(cluster, all_gather_times, "Measured all-gathers, bytes of the gathered tensor.", optional,
          timed_collectives),
      KEY(cluster, reduce_scatter_times, "Measured reduce-scatters, bytes of the whole tensor.", optional,
          timed_collectives),
      KEY(cluster, message_times, "Measured messages between two ranks.", optional, timed_messages),
      KEY(cluster, storage_bandwidth, "Bandwidth at which a rank reads its batch, bytes/s.", optional, rate),
      KEY(cluster, storage_latency, "Latency of reading a batch, seconds.", optional, seconds),
      KEY(cluster, usd_per_gpu_hour, "Price of one GPU for an hour, US dollars.", optional, not_negative),
  };
}

}  // namespace lockstep::config
