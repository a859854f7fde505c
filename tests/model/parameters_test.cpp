#include "model/parameters.hpp"

#include <gtest/gtest.h>

#include <map>
#include <stdexcept>
#include <string>

#include "llama_sizes.hpp"

namespace lockstep::model {
namespace {

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

Parameter find(const std::vector<Parameter>& all, const std::string& name) {
  for (const Parameter& p : all) {
    if (p.name.ends_with(name)) return p;
  }
  throw std::runtime_error("no parameter " + name);
}

// 8 key heads over 16 ranks: two neighbours hold the same; one of them counts.
TEST(Parameters, KeyHeadsFewerThanRanksAreCopied) {
  const std::vector<Parameter> all = model_parameters(llama(1, 4096, 14336, 32));
  const Parameter k = find(all, "k_proj.weight");
  EXPECT_EQ(k.copies(8), 1);
  EXPECT_EQ(k.copies(16), 2);
  EXPECT_EQ(k.local_rows(16), 128);
  for (int64_t rank = 0; rank < 16; ++rank) {
    EXPECT_EQ(k.first_row(16, rank), rank / 2 * 128);
    EXPECT_EQ(k.counts_on(16, rank), rank % 2 == 0);
    EXPECT_TRUE(find(all, "q_proj.weight").counts_on(16, rank));
    EXPECT_EQ(find(all, "input_layernorm.weight").counts_on(16, rank), rank == 0);
  }
}

TEST(Parameters, VocabularyIsPaddedToTensorParallel) {
  config::ModelConfig m = llama(1, 64, 128, 8);
  m.vocab = 5;
  const Parameter embedding = find(model_parameters(m), "embed_tokens.weight");
  const int64_t valid[] = {2, 2, 1, 0};
  for (int64_t rank = 0; rank < 4; ++rank) {
    EXPECT_EQ(embedding.local_rows(4), 2);
    EXPECT_EQ(embedding.first_row(4, rank), 2 * rank);
    EXPECT_EQ(embedding.valid_rows(4, rank), valid[rank]);
  }
  EXPECT_EQ(embedding.valid_rows(1, 0), 5);
}

TEST(Parameters, ATiedCopyCountsNowhere) {
  config::ModelConfig m = llama(2, 64, 128, 8);
  m.tie_embeddings = true;
  const Parameter copy = find(chunk_parameters(m, {1, 1, false, true}), "embed_tokens.weight");
  EXPECT_TRUE(copy.tied_copy);
  for (int64_t rank = 0; rank < 4; ++rank) EXPECT_FALSE(copy.counts_on(4, rank));
  EXPECT_EQ(parameter_count(m), local_parameter_count(m, {0, 2, true, true}, 1));
  EXPECT_EQ(tied_parameter_count(m, {1, 1, false, true}, 4), m.vocab / 4 * 64);
  EXPECT_EQ(tied_parameter_count(m, {0, 2, true, true}, 4), 0);
}

TEST(Parameters, FamiliesOfEachKind) {
  std::map<Family, int> families;
  for (const Parameter& p : model_parameters(llama(2, 64, 128, 8))) ++families[p.family];
  EXPECT_EQ(families[Family::norm], 5);
  EXPECT_EQ(families[Family::embedding], 1);
  EXPECT_EQ(families[Family::output], 1);
  EXPECT_EQ(families[Family::matrix], 14);
}

TEST(Parameters, FlopsPerTokenInBothConventions) {
  const config::ModelConfig m = llama(126, 16384, 53248, 128);
  const double n = 405853388800.0 - 16384.0 * 253 - 128256.0 * 16384;
  EXPECT_DOUBLE_EQ(flops_per_token(m, 8192, false), 6 * n + 12.0 * 126 * 16384 * 8192);
  EXPECT_DOUBLE_EQ(flops_per_token(m, 8192, true), 6 * n + 6.0 * 126 * 16384 * 8192);
}

}  // namespace
}  // namespace lockstep::model
