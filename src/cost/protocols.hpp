// NCCL's protocols and its tuning model: how data of a collective is handed on from rank to rank, and what
// NCCL itself expects that to take. Simple waits for a fence a chunk; LL sends a flag with every 4 bytes,
// LL128 with every 120, so that a receiver sees data as it comes.
//
// All figures are those of NCCL 2.28, src/graph/tuning.cc: ncclTunerConstantsDefaults, ncclTopoTuneModel,
// treeCorrectionFactor and ncclTopoGetAlgoTime. Left out of that file:
// - PAT, NVLS, NVLS tree and CollNet, which NCCL prefers in places;
// - the most that a channel moves: with the channels that NCCL opens it takes 3 % of LL128's bandwidth over
//   more than two nodes of Blackwell GPUs, and nothing else;
// - the rows for hosts with AMD processors, and the extra cost of a chunk on PCIe.
#pragma once

#include <array>
#include <string_view>

namespace lockstep::cost {

struct Protocol {
  // Microseconds. The cluster file's latencies are the ring's in Simple; others are in proportion, so that
  // with NCCL's own figures in the file all are NCCL's.
  struct Latencies {
    double base;    // of a collective
    double nvlink;  // of a hop
    double nic;
  };
  std::string_view name;
  Latencies ring, tree;
  // A hop over NVLink in a ring that leaves the node: at least what the host needs to post a message.
  double ring_nvlink_across;
  // Of the bandwidth of the links. `ring`: 4 of 8 bytes, 120 of 128.
  double ring_share, tree_share, tree_share_across;

  double share(bool of_tree, bool leaves_node) const {
    if (!of_tree) return ring_share;
    return leaves_node ? tree_share_across : tree_share;
  }
};

inline constexpr std::array<Protocol, 3> nccl_protocols = {{
    {"Simple", {8.4, 3.4, 14.0}, {8.4, 4.0, 14.0}, 3.4, 1, 0.92, 0.92},
    {"LL128", {14.0, 1.9, 4.0}, {14.0, 1.25, 8.5}, 1.9, 0.92, 0.92 * 7 / 9, 0.92 * 120 / 128},
    {"LL", {6.6, 0.6, 2.7}, {6.8, 0.6, 5.0}, 1.0, 0.5, 0.92 / 3.8, 0.92 / 3.8},
}};

// Without NCCL: the cluster file's latencies and bandwidths as they stand.
inline constexpr Protocol plain_protocol = {"Simple", {8.4, 3.4, 14}, {8.4, 3.4, 14}, 3.4, 1, 1, 1};

// What LL moves at most between two nodes, and between more, bytes/s of bus bandwidth. Inside a node it is
// the device's: cluster.low_latency_bandwidth.
inline constexpr double ll_bandwidth_of_two_nodes = 39e9, ll_bandwidth_of_nodes = 20.4e9;

// How much of its bandwidth a tree reaches for a buffer of `bytes`, whose pieces fill and drain it. NCCL's
// steps from one power of two to the next are a line here, so that more bytes never take less time.
double tree_correction(const Protocol& protocol, double bytes);

// A ring all-reduce over nodes in Simple takes so many times its latency ("plateau effect") ...
inline constexpr double ring_plateau = 1.4;
// ... from so many bytes a rank and channel on; NCCL opens two channels for each GPU of a node.
inline constexpr double plateau_bytes = 64, channels_per_gpu = 2;

}  // namespace lockstep::cost
