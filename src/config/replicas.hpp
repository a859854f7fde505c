// Logical replicas: how a step's work is dealt to data-parallel ranks. A run has logical_replicas() replicas,
// whatever dp is; rank d computes replica round x dp + d in each of rounds() rounds.
#pragma once

#include <algorithm>
#include <cstdint>

#include "config/run_file.hpp"

namespace lockstep::config {

// Replica that `dp_rank` computes in `round`. Where it is logical_replicas() or more there is none: the rank
// then runs micro-batches without trained tokens, and its gradients are not summed.
inline int64_t replica_of(const ParallelConfig& parallel, int64_t dp_rank, int64_t round) {
  return round * parallel.dp + dp_rank;
}

// Data-parallel ranks, the first ones, that hold a replica in `round`.
inline int contributors(const ParallelConfig& parallel, int64_t round) {
  return static_cast<int>(
      std::clamp<int64_t>(parallel.logical_replicas() - round * parallel.dp, 0, parallel.dp));
}

struct LocalMicroBatch {
  int64_t round = 0;
  int64_t micro_batch = 0;  // of the round's replica

  bool operator==(const LocalMicroBatch&) const = default;
};

// What a worker's micro-batch `index` of a step (from 0, below replica_micro_batches x rounds()) is. With
// gradients scattered once a chunk a whole replica comes after the other; scattered at every micro-batch, all
// rounds of a micro-batch come together, so that one sum over the replicas is done before the next begins.
inline LocalMicroBatch local_micro_batch(const ParallelConfig& parallel, int64_t replica_micro_batches,
                                         int64_t index) {
  if (parallel.gradient_scatter == GradientScatter::micro_batch)
    return {index % parallel.rounds(), index / parallel.rounds()};
  return {index / replica_micro_batches, index % replica_micro_batches};
}

}  // namespace lockstep::config
