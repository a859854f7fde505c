#include "train/trainer.hpp"

#include <algorithm>
#include <cmath>

#include "base/error.hpp"
#include "train/learning_rate.hpp"

namespace lockstep::train {

namespace {

std::chrono::milliseconds timeout_of(const config::RunFile& run) {
  return std::chrono::seconds(run.train.timeout_seconds);
}

data::Corpus load_text(const config::RunFile& run) {
  data::CorpusOptions options;
  options.text = run.data.text;
  options.held_out = run.data.held_out;
  options.sequence = run.train.sequence;
  return data::load_corpus(options);
}

}  // namespace

Trainer::Trainer(const config::RunFile& run, comm::World& world, std::vector<parallel::Program> programs)
    : run_(run),
      layout_(run),
      programs_(std::move(programs)),
      groups_(make_groups(layout_.mesh(), world, timeout_of(run))),
      context_(nn::make_context(run, groups_.tp.get(), &log_)),
      corpus_(load_text(run)),
      executor_(std::make_unique<StepExecutor>(layout_, groups_, context_)) {
  sampler_.emplace(corpus_.training, run.train.sequence, static_cast<uint64_t>(run.train.seed));
  const data::BatchCut cut{run.train.global_batch, run.parallel.micro_batch, run.train.sequence,
                           groups_.at.dp, static_cast<int>(run.parallel.dp)};
  const auto fill = [this](int64_t first, int64_t n, std::span<int64_t> inputs, std::span<int64_t> targets) {
    sampler_->fill(first, n, inputs, targets);
  };
  prefetcher_ = std::make_unique<data::BatchPrefetcher>(fill, cut, 0, run.train.steps);
}

Trainer::~Trainer() = default;

StepReport Trainer::step() {
  const config::TrainConfig& train = run_.train;
  const double tokens = static_cast<double>(train.global_batch * train.sequence);
  const double lr = learning_rate(train, steps_done_);
  ++steps_done_;
  const StepSums sums =
      executor_->train_step(programs_.at(static_cast<size_t>(groups_.at.pp)),
                            [this] { return prefetcher_->next(); }, {steps_done_, lr, 1.0 / tokens});
  return {steps_done_, sums.loss / tokens, std::sqrt(sums.squared_norm), lr};
}

// This replica's share of windows 0..sequences-1. Places beyond the last window are filled up with positions
// without loss, so that every replica has the same count of micro-batches.
data::StepBatch Trainer::held_out_batch(const data::Windows& windows, int64_t sequences,
                                        int micro_batches) const {
  const int64_t rows = run_.parallel.micro_batch;
  const auto length = static_cast<size_t>(run_.train.sequence);
  data::StepBatch batch;
  for (int i = 0; i < micro_batches; ++i) {
    data::MicroBatch mb;
    mb.inputs.assign(static_cast<size_t>(rows) * length, 0);
    mb.targets.assign(static_cast<size_t>(rows) * length, -1);
    for (int64_t row = 0; row < rows; ++row) {
      const int64_t window = (static_cast<int64_t>(groups_.at.dp) * micro_batches + i) * rows + row;
      if (window >= sequences) break;
      windows.fill(window, std::span(mb.inputs).subspan(static_cast<size_t>(row) * length, length),
                   std::span(mb.targets).subspan(static_cast<size_t>(row) * length, length));
    }
    batch.micro_batches.push_back(std::move(mb));
  }
  return batch;
}

EvaluationReport Trainer::evaluate() {
  const data::Windows windows(corpus_.held_out, run_.train.sequence);
  const int64_t wanted = run_.train.eval_sequences;
  const int64_t sequences = wanted == 0 ? windows.count() : std::min(wanted, windows.count());
  const int64_t at_once = run_.parallel.dp * run_.parallel.micro_batch;
  const auto total = static_cast<int>((sequences + at_once - 1) / at_once);
  data::StepBatch all = held_out_batch(windows, sequences, total);

  // As many micro-batches at a time as a training step has, so that no more messages are under way.
  EvaluationReport report{0, sequences * run_.train.sequence};
  for (int done = 0; done < total;) {
    const int count = std::min(total - done, layout_.micro_batches());
    const auto first = all.micro_batches.begin() + done;
    data::StepBatch part;
    part.micro_batches.assign(first, first + count);
    const auto programs = parallel::build_evaluation_programs(layout_, count);
    report.loss += executor_->evaluate(programs[static_cast<size_t>(groups_.at.pp)], std::move(part)).loss;
    done += count;
  }
  report.loss /= static_cast<double>(report.tokens);
  return report;
}

WeightsHash Trainer::weights_hash() const {
  WeightsHash hash{};
  for (const auto& chunk : executor_->chunks()) chunk.state->add_to(hash);
  for (comm::Communicator* group : {groups_.dp.get(), groups_.tp.get(), groups_.pp.get()}) {
    // Sums of i64 wrap, as the hash wants.
    if (group != nullptr) group->all_reduce(hash.data(), hash.size(), comm::DataType::i64);
  }
  return hash;
}

}  // namespace lockstep::train
