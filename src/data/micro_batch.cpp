#include "data/micro_batch.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <initializer_list>
#include <span>

#include "base/error.hpp"
#include "config/batch_ramp.hpp"
#include "config/replicas.hpp"

namespace lockstep::data {
namespace {

// Cuts whole sequences for one context-parallel rank and lays them into micro-batches.
class Cutter {
 public:
  Cutter(const config::RunFile& run, int64_t cp_rank)
      : rows_(run.parallel.micro_batch),
        sequence_(run.train.sequence),
        cp_(run.parallel.cp),
        cp_rank_(cp_rank),
        whole_(static_cast<size_t>(sequence_), run.data.document_mask) {}

  // Nothing to learn in any of its places.
  MicroBatch blank() const {
    return {std::vector<int64_t>(tokens(), 0), std::vector<int64_t>(tokens(), -1),
            std::vector<int64_t>(whole_.document_starts.empty() ? 0 : tokens(), 0)};
  }

  // Puts the sequence that fill(spans) gives into row `row`.
  template <class Fill>
  void put(MicroBatch& batch, int64_t row, Fill&& fill) {
    fill(whole_.spans());
    cut(whole_.inputs, batch.inputs, row);
    cut(whole_.targets, batch.targets, row);
    if (!whole_.document_starts.empty()) cut(whole_.document_starts, batch.document_starts, row);
  }

 private:
  struct Whole {
    Whole(size_t length, bool masked)
        : inputs(length), targets(length), document_starts(masked ? length : 0) {}
    SequenceSpans spans() { return {inputs, targets, document_starts}; }

    std::vector<int64_t> inputs, targets, document_starts;  // [sequence]
  };

  size_t tokens() const { return static_cast<size_t>(rows_ * (sequence_ / cp_)); }

  void cut(const std::vector<int64_t>& whole, std::vector<int64_t>& rows, int64_t row) const {
    auto to = rows.begin() + row * (sequence_ / cp_);
    if (cp_ == 1) {
      std::copy(whole.begin(), whole.end(), to);
      return;
    }
    const int64_t length = sequence_ / (2 * cp_);
    for (const int64_t chunk : {cp_rank_, 2 * cp_ - 1 - cp_rank_})
      to = std::copy_n(whole.begin() + chunk * length, length, to);
  }

  const int64_t rows_, sequence_, cp_, cp_rank_;
  Whole whole_;
};

void check_batch(const config::RunFile& run, int64_t sequences) {
  const int64_t replicas = run.parallel.logical_replicas();
  const int64_t unit = replicas * run.parallel.micro_batch;
  if (sequences >= 1 && sequences % unit == 0) return;
  const int64_t nearest = std::max<int64_t>((sequences + unit / 2) / unit, 1) * unit;
  throw UsageError(
      fmt::format("a step of {} sequences (train.global_batch, train.batch_ramp): {} replicas with "
                  "micro-batches of {} need a multiple of {}; the nearest is {}.",
                  sequences, replicas, run.parallel.micro_batch, unit, nearest));
}

}  // namespace

int64_t trained_tokens(const MicroBatch& batch) {
  return std::count_if(batch.targets.begin(), batch.targets.end(),
                       [](int64_t target) { return target != -1; });
}

void check_cut(const config::RunFile& run, DataRank rank) {
  const config::ParallelConfig& p = run.parallel;
  const int64_t chunks = p.cp > 1 ? 2 * p.cp : 1;
  if (run.train.sequence < 1 || p.micro_batch < 1 || p.dp < 1 || p.cp < 1 || p.logical_replicas() < p.dp) {
    throw UsageError(
        fmt::format("train.sequence = {}, parallel.micro_batch = {}, dp = {}, cp = {}: each must "
                    "be 1 or more, and parallel.replicas = {} at least dp.",
                    run.train.sequence, p.micro_batch, p.dp, p.cp, p.replicas));
  }
  if (run.train.sequence % chunks != 0) {
    throw UsageError(
        fmt::format("train.sequence = {}: must be a multiple of 2 x parallel.cp = {}: context parallel cuts "
                    "a sequence into so many chunks.",
                    run.train.sequence, chunks));
  }
  for (const config::BatchStage& stage : config::batch_stages(run.train)) check_batch(run, stage.sequences);
  if (rank.dp >= 0 && rank.dp < p.dp && rank.cp >= 0 && rank.cp < p.cp) return;
  throw RunError(
      fmt::format("data: rank dp {} cp {} is outside the mesh of dp {} cp {}", rank.dp, rank.cp, p.dp, p.cp));
}

StepBatch make_step_batch(const SampleFill& fill, const config::RunFile& run, DataRank rank, int64_t step) {
  check_cut(run, rank);
  const config::ParallelConfig& p = run.parallel;
  const int64_t samples = config::batch_of_step(run.train, step + 1) / p.logical_replicas();
  const int64_t begin = config::sequences_before_step(run.train, step + 1);
  const int64_t micro_batches = samples / p.micro_batch;  // of one replica
  Cutter cutter(run, rank.cp);
  StepBatch batch;
  batch.step = step;
  for (int64_t index = 0; index < micro_batches * p.rounds(); ++index) {
    const config::LocalMicroBatch at = config::local_micro_batch(p, micro_batches, index);
    const int64_t replica = config::replica_of(p, rank.dp, at.round);
    MicroBatch& micro_batch = batch.micro_batches.emplace_back(cutter.blank());
    if (replica >= p.logical_replicas()) continue;
    const int64_t first = begin + replica * samples + at.micro_batch * p.micro_batch;
    for (int64_t row = 0; row < p.micro_batch; ++row)
      cutter.put(micro_batch, row, [&](const SequenceSpans& spans) { fill(first + row, spans); });
    batch.trained_tokens += trained_tokens(micro_batch);
  }
  return batch;
}

MicroBatch held_out_micro_batch(const Windows& windows, const config::RunFile& run, int64_t cp_rank,
                                int64_t first, int64_t end) {
  check_cut(run, {0, cp_rank});
  Cutter cutter(run, cp_rank);
  MicroBatch batch = cutter.blank();
  for (int64_t row = 0; row < run.parallel.micro_batch && first + row < end; ++row)
    cutter.put(batch, row, [&](const SequenceSpans& spans) { windows.fill(first + row, spans); });
  return batch;
}

}  // namespace lockstep::data
