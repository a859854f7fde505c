#include "train/trainer.hpp"

#include <algorithm>
#include <cmath>

#include "base/error.hpp"
#include "config/batch_ramp.hpp"
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

Trainer::Trainer(const config::RunFile& run, comm::World& world, const Programs& programs)
    : run_(run),
      world_(world),
      layout_(run),
      groups_(make_groups(run, layout_.mesh(), world, timeout_of(run))),
      context_(nn::make_context(run, groups_.tp.get(), groups_.cp.get(), &log_)),
      corpus_(load_text(run)),
      executor_(std::make_unique<StepExecutor>(layout_, groups_, context_)) {
  for (const config::BatchStage& stage : config::batch_stages(run.train)) {
    config::RunFile of_stage = run;
    of_stage.train.global_batch = stage.sequences;
    auto layout = std::make_unique<parallel::Layout>(of_stage);
    auto program = programs(*layout).at(static_cast<size_t>(groups_.at.pp));
    batch_sizes_.push_back({stage.last_step, std::move(layout), std::move(program)});
  }
  sampler_.emplace(corpus_.training, run.train.sequence, static_cast<uint64_t>(run.train.seed));
  const auto fill = [this](int64_t sample, const data::SequenceSpans& spans) {
    sampler_->fill(sample, spans);
  };
  prefetcher_ = std::make_unique<data::BatchPrefetcher>(
      fill, run, data::DataRank{groups_.at.dp, groups_.at.cp}, 0, run.train.steps);
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
  StepReport report;
  report.lr = learning_rate(train, steps_done_);
  report.step = ++steps_done_;
  report.sequences = config::batch_of_step(train, report.step);
  size_t size = 0;
  while (size + 1 < batch_sizes_.size() && report.step > batch_sizes_[size].last_step) ++size;
  const StepOutcome outcome =
      executor_->train_step(*batch_sizes_[size].layout, batch_sizes_[size].program,
                            [this] { return prefetcher_->next(); }, {report.lr, updates_done_ + 1});
  report.tokens = static_cast<int64_t>(outcome.sums.tokens);
  report.loss = outcome.sums.loss / outcome.sums.tokens;
  report.grad_norm = std::sqrt(outcome.sums.squared_norm) / outcome.sums.tokens;
  report.exposed = outcome.waits.exposed;
  report.under_way = outcome.waits.under_way;
  report.peak_activation_bytes = outcome.peak_activation_bytes;
  check_finite(report, outcome);
  return report;
}

void Trainer::check_finite(StepReport& report, const StepOutcome& outcome) {
  if (!outcome.trouble) {
    ++updates_done_;
    skips_in_a_row_ = 0;
    return;
  }
  report.skipped = true;
  report.trouble = *outcome.trouble;
  ++skips_in_a_row_;
  const bool stops = run_.train.nonfinite == config::NonFinite::stop;
  if (!stops && skips_in_a_row_ < most_skips_in_a_row) return;
  std::string text = "step " + std::to_string(report.step) +
                     ": loss or gradient is not finite; it began in " + report.trouble +
                     ". The weights were left as they were. ";
  if (!stops) text += std::to_string(skips_in_a_row_) + " steps in a row were skipped. ";
  text += updates_done_ == 0 ? "No step has changed them yet: try a smaller model.init_std"
                             : "Try a smaller train.lr or a longer train.warmup";
  throw RunError(text + (stops ? ", or train.nonfinite = \"skip\"." : "."));
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
  double loss = 0;
  int64_t tokens = 0;
  for (int done = 0; done < total;) {
    const int count = std::min(total - done, layout_.micro_batches());
    data::StepBatch part;
    for (int i = done; i < done + count; ++i) {
      part.micro_batches.push_back(
          data::held_out_micro_batch(windows, run_, groups_.at.cp, first_window + i * rows, sequences));
      const auto& targets = part.micro_batches.back().targets;
      part.trained_tokens += std::count_if(targets.begin(), targets.end(), [](int64_t t) { return t >= 0; });
    }
    const auto programs = parallel::build_evaluation_programs(layout_, count);
    const StepSums sums = executor_->evaluate(programs[static_cast<size_t>(groups_.at.pp)], std::move(part));
    loss += sums.loss;
    tokens += static_cast<int64_t>(sums.tokens);
    done += count;
  }
  return {loss / static_cast<double>(tokens), tokens};
}

WeightsHash Trainer::weights_hash() const {
  WeightsHash hash{};
  for (const auto& chunk : executor_->chunks()) chunk->state().add_to(hash);
  for (comm::Communicator* group : {groups_.dp_cp.get(), groups_.tp.get(), groups_.pp.get()}) {
    // Sums of i64 wrap, as the hash wants.
    if (group != nullptr) group->all_reduce(hash.data(), hash.size(), comm::DataType::i64);
  }
  return hash;
}

}  // namespace lockstep::train
