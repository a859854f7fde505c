// One worker's share of a step: which samples its data-parallel rank computes for which logical replica
// (config/replicas.hpp), and which tokens of each sample its context-parallel rank holds.
#pragma once

#include <cstdint>
#include <functional>
#include <vector>

#include "config/run_file.hpp"
#include "data/sampler.hpp"

namespace lockstep::data {

// Tokens of micro_batch sequences, each [micro_batch, sequence / cp].
struct MicroBatch {
  std::vector<int64_t> inputs;
  std::vector<int64_t> targets;  // -1: not learnt
  // The position in its whole sequence, 0..sequence-1, at which the token's document begins; 0 where it began
  // before the sequence did. Empty without data.document_mask.
  std::vector<int64_t> document_starts;
};

int64_t trained_tokens(const MicroBatch& batch);  // targets that are not -1

struct StepBatch {
  int64_t step = 0;  // 0 is the first
  // In the order of config::local_micro_batch. Where a round has no replica for this rank: inputs 0, targets
  // -1, document_starts 0.
  std::vector<MicroBatch> micro_batches;
  int64_t trained_tokens = 0;  // of all of them
};

// The worker's place in the mesh, as far as data goes; tensor and pipeline parallel ranks read the same.
struct DataRank {
  int64_t dp = 0;
  int64_t cp = 0;
};

// Fills one sample of the run.
using SampleFill = std::function<void(int64_t sample, const SequenceSpans& spans)>;

// UsageError when the run's sequences or batches cannot be cut as its mesh says (the run file's rules see to
// it), RunError when the rank is outside the mesh.
void check_cut(const config::RunFile& run, DataRank rank);

// The micro-batches of step `step`, made now, in this thread. The step's B = config::batch_of_step sequences
// start at sample config::sequences_before_step; logical replica r of R takes [r B/R, (r+1) B/R) of them, cut
// into micro-batches in order. Context-parallel rank i of c holds the chunks i and 2c-1-i of 2c equal chunks
// of every sequence (The Llama 3 Herd of Models, arXiv:2407.21783, section 3.3.2), in that order; the whole
// sequence where c = 1.
StepBatch make_step_batch(const SampleFill& fill, const config::RunFile& run, DataRank rank, int64_t step);

// parallel.micro_batch windows from `first` on, cut in the same way, for evaluation. Places from window `end`
// on get inputs 0, targets -1, document_starts 0.
MicroBatch held_out_micro_batch(const Windows& windows, const config::RunFile& run, int64_t cp_rank,
                                int64_t first, int64_t end);

}  // namespace lockstep::data
