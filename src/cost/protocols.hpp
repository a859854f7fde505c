// NCCL's protocols: how data of a collective is handed on from rank to rank. Simple waits for a fence a
// chunk; LL sends a flag with every 4 bytes, LL128 with every 120, so that a receiver sees data as it comes.
#pragma once

#include <array>
#include <string_view>

namespace lockstep::cost {

// Latencies of one hop over that of a ring's hop in Simple, which cluster.nvlink_latency and nic_latency are.
struct Protocol {
  std::string_view name;
  double bandwidth = 1;  // share of Simple's
  double ring_nvlink = 1, ring_nic = 1;
  double tree_nvlink = 1, tree_nic = 1;
};

// Ratios of the latencies, in microseconds, of NCCL 2.28's tuning (src/graph/tuning.cc,
// ncclTunerConstantsDefaults.hwLatencies): NVLink, tree .6, 1.25, 4.0 and ring .6, 1.9, 3.4; network,
// tree 5.0, 8.5, 14 and ring 2.7, 4.0, 14 for LL, LL128, Simple. Bandwidths: 4 of 8 and 120 of 128 bytes are
// data.
inline constexpr std::array<Protocol, 3> protocols = {{
    {"Simple", 1, 1, 1, 4.0 / 3.4, 14.0 / 14.0},
    {"LL128", 120.0 / 128, 1.9 / 3.4, 4.0 / 14, 1.25 / 3.4, 8.5 / 14},
    {"LL", 0.5, 0.6 / 3.4, 2.7 / 14, 0.6 / 3.4, 5.0 / 14},
}};

}  // namespace lockstep::cost
