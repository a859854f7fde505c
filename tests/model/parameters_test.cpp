#include "model/parameters.hpp"

#include <gtest/gtest.h>

namespace lockstep::model {
namespace {

config::ModelConfig llama(int64_t layers, int64_t hidden, int64_t ffn, int64_t heads) {
  config::ModelConfig m;
  m.layers = layers;
  m.hidden = hidden;
  m.ffn = ffn;
  m.heads = heads;
  m.kv_heads = 8;
  m.vocab = 128256;
  return m;
}

// Published counts: arXiv:2407.21783 table 3 (rounded); exact ones from the released checkpoints' tensors.
TEST(Parameters, CountsOfLlama3) {
  EXPECT_EQ(parameter_count(llama(32, 4096, 14336, 32)), 8'030'261'248);
  EXPECT_EQ(parameter_count(llama(80, 8192, 28672, 64)), 70'553'706'496);
  EXPECT_EQ(parameter_count(llama(126, 16384, 53248, 128)), 405'853'388'800);
}

TEST(Parameters, TensorParallelCutsAllButTheNorms) {
  const config::ModelConfig m = llama(32, 4096, 14336, 32);
  const ChunkContent all{0, 32, true, true};
  const int64_t norms = replicated_parameter_count(m, all);
  EXPECT_EQ(norms, 4096 * 65);
  EXPECT_EQ(local_parameter_count(m, all, 8), (parameter_count(m) - norms) / 8 + norms);
}

TEST(Parameters, FlopsPerTokenInBothConventions) {
  const config::ModelConfig m = llama(126, 16384, 53248, 128);
  const double n = 405853388800.0 - 16384.0 * 253 - 128256.0 * 16384;
  EXPECT_DOUBLE_EQ(flops_per_token(m, 8192, false), 6 * n + 12.0 * 126 * 16384 * 8192);
  EXPECT_DOUBLE_EQ(flops_per_token(m, 8192, true), 6 * n + 6.0 * 126 * 16384 * 8192);
}

}  // namespace
}  // namespace lockstep::model
