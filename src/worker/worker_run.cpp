#include "worker/worker_run.hpp"

#include <ATen/ATen.h>
#include <sys/resource.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <numeric>
#include <optional>
#include <utility>
#include <vector>

#include "base/error.hpp"
#include "config/batch_ramp.hpp"
#include "model/parameters.hpp"
#include "observe/worker_message.hpp"
#include "parallel/program_check.hpp"
#include "train/span_writer.hpp"
#include "train/tensor_memory.hpp"
#include "train/trainer.hpp"
#include "worker/matrix_peak.hpp"

namespace lockstep::worker {

namespace {

using Clock = std::chrono::steady_clock;

double seconds_between(Clock::time_point from, Clock::time_point to) {
  return std::chrono::duration<double>(to - from).count();
}

int64_t peak_resident_bytes() {
  rusage usage{};
  getrusage(RUSAGE_SELF, &usage);
  return usage.ru_maxrss * int64_t{1024};
}

// Fills the figures of a step line.
class StepMeter {
 public:
  StepMeter(const config::RunFile& run, const observe::MatrixPeak& peak)
      : run_(run),
        peak_(peak),
        flops_(model::flops_per_token(run.model, run.train.sequence, false)),
        causal_flops_(model::flops_per_token(run.model, run.train.sequence, true)),
        all_sequences_(config::sequences_before_step(run.train, run.train.steps + 1)),
        last_(Clock::now()) {}

  // What was done since the last step is not part of the next.
  void restart() { last_ = Clock::now(); }

  observe::StepRecord record(const train::StepReport& report) {
    const auto now = Clock::now();
    observe::StepRecord r;
    r.step = report.step;
    r.steps = run_.train.steps;
    r.loss = report.loss;
    r.grad_norm = report.grad_norm;
    r.lr = report.lr;
    r.tokens = report.tokens;
    r.skipped = report.skipped;
    r.trouble = report.trouble;
    r.seconds = seconds_between(last_, now);
    r.memory_bytes = peak_resident_bytes();
    r.tokens_per_second = static_cast<double>(r.tokens) / r.seconds;
    const double flops = flops_ * r.tokens_per_second;
    r.tflops = flops / 1e12 / static_cast<double>(run_.parallel.world_size());
    r.mfu = flops / peak_.flops;
    r.mfu_causal = causal_flops_ * r.tokens_per_second / peak_.flops;
    // A running mean that forgets slowly; the first steps, which warm caches up, weigh little after a while.
    const double seconds = r.seconds / static_cast<double>(report.sequences);
    mean_seconds_ = report.step <= 3 ? seconds : 0.95 * mean_seconds_ + 0.05 * seconds;
    const int64_t done = config::sequences_before_step(run_.train, report.step + 1);
    r.eta_seconds = mean_seconds_ * static_cast<double>(all_sequences_ - done);
    last_ = now;
    return r;
  }

 private:
  const config::RunFile& run_;
  observe::MatrixPeak peak_;
  double flops_, causal_flops_;  // per token
  int64_t all_sequences_;        // of the run
  Clock::time_point last_;
  double mean_seconds_ = 0;  // a sequence
};

// The held-out loss after `step`, reported by rank 0.
double evaluate(train::Trainer& trainer, int64_t step, int rank, const WorkerPlace& place) {
  const train::EvaluationReport held_out = trainer.evaluate();
  if (!std::isfinite(held_out.loss)) {
    throw RunError("the held-out loss is not finite after step " + std::to_string(step) +
                   ": the step left weights that overflow. Try a smaller train.lr.");
  }
  if (rank == 0) {
    observe::send_message(place.message_fd, observe::EvaluationMessage{step, held_out.loss, held_out.tokens});
  }
  return held_out.loss;
}

// The evaluation after the last step is left to the caller.
void train_all_steps(const config::RunFile& run, int rank, const observe::MatrixPeak& peak,
                     train::Trainer& trainer, const WorkerPlace& place) {
  const int64_t first_traced = run.train.trace_first_step;
  const int64_t end_traced = first_traced + run.train.trace_steps;
  std::optional<train::SpanWriter> spans;
  if (run.train.trace_steps > 0) spans.emplace(trainer.layout(), rank);
  StepMeter meter(run, peak);
  for (int64_t step = 1; step <= run.train.steps; ++step) {
    const bool traced = step >= first_traced && step < end_traced;
    trainer.log().set_recording(traced);
    const train::StepReport report = trainer.step();
    if (traced) spans->add_step(step, trainer.log().take());
    observe::send_message(place.message_fd, observe::WaitMessage{rank,
                                                                 step,
                                                                 {report.exposed, report.under_way},
                                                                 train::peak_tensor_bytes(),
                                                                 peak_resident_bytes()});
    train::reset_peak_tensor_bytes();
    if (rank == 0) observe::send_message(place.message_fd, meter.record(report));
    if (run.train.eval_interval > 0 && step % run.train.eval_interval == 0 && step < run.train.steps) {
      trainer.log().set_recording(false);
      evaluate(trainer, step, rank, place);
      meter.restart();
    }
  }
  trainer.log().set_recording(false);
  if (spans) spans->save(place.run_folder / "trace" / ("rank-" + std::to_string(rank) + ".spans"));
}

std::vector<parallel::Program> proved_programs(const parallel::Layout& layout) {
  auto programs = parallel::build_step_programs(layout);
  parallel::check_step_programs(layout, programs);
  return programs;
}

observe::MatrixPeak matrix_peak(const config::RunFile& run, comm::World& world) {
  std::vector<int> ranks(static_cast<size_t>(world.size()));
  std::iota(ranks.begin(), ranks.end(), 0);
  const auto group = world.group("world", std::move(ranks));
  // No part of a step: a machine that starts many workers may take longer than a step's wait may.
  group->set_timeout(std::chrono::seconds(std::max<int64_t>(run.train.timeout_seconds, 60)));
  return measure_matrix_peak(run.train.dtype, *group, usable_cores());
}

}  // namespace

void run_worker(const config::RunFile& run, comm::World& world, const WorkerPlace& place) {
  const c10::InferenceMode inference;
  train::Trainer trainer(run, world, proved_programs);
  const observe::MatrixPeak peak = matrix_peak(run, world);
  if (world.rank() == 0) observe::send_message(place.message_fd, peak);
  observe::send_message(place.message_fd, observe::ReadyMessage{world.rank()});
  train_all_steps(run, world.rank(), peak, trainer, place);

  const double held_out_loss = evaluate(trainer, run.train.steps, world.rank(), place);
  const train::WeightsHash hash = trainer.weights_hash();
  if (world.rank() == 0) observe::send_message(place.message_fd, observe::FinalMessage{hash, held_out_loss});
}

}  // namespace lockstep::worker
