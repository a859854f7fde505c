// The deal of logical replicas and their micro-batches to data-parallel ranks, against plain loops.
#include "config/replicas.hpp"

#include <gtest/gtest.h>

#include <vector>

namespace lockstep::config {
namespace {

ParallelConfig parallel_of(int64_t dp, int64_t replicas, GradientScatter scatter) {
  ParallelConfig parallel;
  parallel.dp = dp;
  parallel.replicas = replicas;
  parallel.gradient_scatter = scatter;
  return parallel;
}

TEST(Replicas, MicroBatchesComeReplicaAfterReplicaOrRoundsTogether) {
  for (int64_t dp = 1; dp <= 4; ++dp) {
    for (int64_t replicas = dp; replicas <= 9; ++replicas) {
      for (int64_t micro_batches = 1; micro_batches <= 3; ++micro_batches) {
        const auto chunk = parallel_of(dp, replicas, GradientScatter::chunk);
        int64_t index = 0;
        for (int64_t round = 0; round * dp < replicas; ++round) {
          for (int64_t m = 0; m < micro_batches; ++m)
            EXPECT_EQ(local_micro_batch(chunk, micro_batches, index++), (LocalMicroBatch{round, m}));
        }
        EXPECT_EQ(index, micro_batches * chunk.rounds());
        const auto each = parallel_of(dp, replicas, GradientScatter::micro_batch);
        index = 0;
        for (int64_t m = 0; m < micro_batches; ++m) {
          for (int64_t round = 0; round * dp < replicas; ++round)
            EXPECT_EQ(local_micro_batch(each, micro_batches, index++), (LocalMicroBatch{round, m}));
        }
      }
    }
  }
}

TEST(Replicas, EachIsComputedOnceAndTheFirstRanksContribute) {
  for (int64_t dp = 1; dp <= 5; ++dp) {
    for (int64_t replicas = dp; replicas <= 12; ++replicas) {
      const auto parallel = parallel_of(dp, replicas, GradientScatter::chunk);
      std::vector<int> times(static_cast<size_t>(replicas), 0);
      for (int64_t round = 0; round < parallel.rounds(); ++round) {
        EXPECT_GE(contributors(parallel, round), 1);
        for (int64_t rank = 0; rank < dp; ++rank) {
          const int64_t replica = replica_of(parallel, rank, round);
          EXPECT_EQ(replica < replicas, rank < contributors(parallel, round));
          if (replica < replicas) ++times[static_cast<size_t>(replica)];
        }
      }
      EXPECT_EQ(times, std::vector<int>(static_cast<size_t>(replicas), 1));
      EXPECT_EQ(contributors(parallel, parallel.rounds()), 0);
    }
  }
  EXPECT_EQ(parallel_of(3, 0, GradientScatter::chunk).rounds(), 1);  // 0 takes dp
  EXPECT_EQ(contributors(parallel_of(3, 0, GradientScatter::chunk), 0), 3);
}

}  // namespace
}  // namespace lockstep::config
