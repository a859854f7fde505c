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
      world_(world),
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

// Before the stack unwinds: destructors wait for operations under way, and those for the peers.
template <class F>
auto Trainer::with_peers_told(F&& work) const {
  try {
    return work();
  } catch (const std::exception& error) {
    world_.abort(error.what());
    throw;
  }
}

StepReport Trainer::step() {
  return with_peers_told([this] { return next_step(); });
}

EvaluationReport Trainer::evaluate() {
  return with_peers_told([this] { return held_out_loss(); });
}

StepReport Trainer::next_step() {
  const config::TrainConfig& train = run_.train;
  const double tokens = static_cast<double>(train.global_batch * train.sequence);
  const double lr = learning_rate(train, steps_done_);
  ++steps_done_;
  const StepSums sums =
      executor_->train_step(programs_.at(static_cast<size_t>(groups_.at.pp)),
                            [this] { return prefetcher_->next(); }, {steps_done_, lr, 1.0 / tokens});
  return {steps_done_, sums.loss / tokens, std::sqrt(sums.squared_norm), lr};
}

// Windows first .. first + micro_batch - 1. Places from `end` on are filled up with positions without loss,
// so that every replica has the same count of micro-batches.
data::MicroBatch Trainer::held_out_micro_batch(const data::Windows& windows, int64_t first,
                                               int64_t end) const {
  const int64_t rows = run_.parallel.micro_batch, length = run_.train.sequence;
  const auto tokens = static_cast<size_t>(rows * length);
  data::MicroBatch batch{std::vector<int64_t>(tokens, 0), std::vector<int64_t>(tokens, -1)};
  const int64_t n = std::clamp<int64_t>(end - first, 0, rows);
  const auto filled = static_cast<size_t>(n * length);
  windows.fill_in_order(first, n, std::span(batch.inputs).first(filled),
                        std::span(batch.targets).first(filled));
  return batch;
}

EvaluationReport Trainer::held_out_loss() {
  const data::Windows windows(corpus_.held_out, run_.train.sequence);
  const int64_t wanted = run_.train.eval_sequences;
  const int64_t sequences = wanted == 0 ? windows.count() : std::min(wanted, windows.count());
  const int64_t rows = run_.parallel.micro_batch;
  const int64_t at_once = run_.parallel.dp * rows;
  const auto total = static_cast<int>((sequences + at_once - 1) / at_once);  // micro-batches of a replica
  const int64_t first_window = groups_.at.dp * total * rows;

  // As many micro-batches at a time as a training step has, so that no more messages are under way.
  EvaluationReport report{0, sequences * run_.train.sequence};
  for (int done = 0; done < total;) {
    const int count = std::min(total - done, layout_.micro_batches());
    data::StepBatch part;
    for (int i = done; i < done + count; ++i) {
      part.micro_batches.push_back(held_out_micro_batch(windows, first_window + i * rows, sequences));
    }
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
