#include "worker/worker_run.hpp"

#include <ATen/ATen.h>
#include <sys/resource.h>

#include <chrono>
#include <cmath>
#include <optional>

#include "base/error.hpp"
#include "model/parameters.hpp"
#include "observe/worker_message.hpp"
#include "parallel/program_check.hpp"
#include "train/span_writer.hpp"
#include "train/trainer.hpp"

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

// FLOP/s of one modelled device at the run's type.
double peak_flops(const config::RunFile& run) {
  switch (run.train.dtype) {
    case config::Dtype::bf16:
      return run.cluster.peak_flops_bf16;
    case config::Dtype::fp32:
      return run.cluster.peak_flops_fp32;
    case config::Dtype::fp64:
      return run.cluster.peak_flops_fp64;
  }
  return 0;
}

// Fills the figures of a step line.
class StepMeter {
 public:
  explicit StepMeter(const config::RunFile& run)
      : run_(run),
        flops_(model::flops_per_token(run.model, run.train.sequence, false)),
        last_(Clock::now()) {}

  observe::StepRecord record(const train::StepReport& report) {
    const auto now = Clock::now();
    observe::StepRecord r;
    r.step = report.step;
    r.steps = run_.train.steps;
    r.loss = report.loss;
    r.grad_norm = report.grad_norm;
    r.lr = report.lr;
    r.tokens = run_.train.global_batch * run_.train.sequence;
    r.seconds = seconds_between(last_, now);
    r.memory_bytes = peak_resident_bytes();
    r.tokens_per_second = static_cast<double>(r.tokens) / r.seconds;
    const double flops = flops_ * r.tokens_per_second / static_cast<double>(run_.parallel.world_size());
    r.tflops = flops / 1e12;
    r.mfu = flops / peak_flops(run_);
    // A running mean that forgets slowly; the first steps, which warm caches up, weigh little after a while.
    mean_seconds_ = report.step <= 3 ? r.seconds : 0.95 * mean_seconds_ + 0.05 * r.seconds;
    r.eta_seconds = mean_seconds_ * static_cast<double>(run_.train.steps - report.step);
    last_ = now;
    return r;
  }

 private:
  const config::RunFile& run_;
  double flops_;  // per token
  Clock::time_point last_;
  double mean_seconds_ = 0;
};

void train_all_steps(const config::RunFile& run, int rank, train::Trainer& trainer,
                     const WorkerPlace& place) {
  const int64_t first_traced = run.train.trace_first_step;
  const int64_t end_traced = first_traced + run.train.trace_steps;
  std::optional<train::SpanWriter> spans;
  if (run.train.trace_steps > 0) spans.emplace(trainer.layout(), rank);
  StepMeter meter(run);
  for (int64_t step = 1; step <= run.train.steps; ++step) {
    const bool traced = step >= first_traced && step < end_traced;
    trainer.log().set_recording(traced);
    const train::StepReport report = trainer.step();
    if (traced) spans->add_step(step, trainer.log().take());
    if (rank == 0) observe::send_message(place.message_fd, meter.record(report));
  }
  trainer.log().set_recording(false);
  if (spans) spans->save(place.run_folder / "trace" / ("rank-" + std::to_string(rank) + ".spans"));
}

}  // namespace

void run_worker(const config::RunFile& run, comm::World& world, const WorkerPlace& place) {
  const c10::InferenceMode inference;
  const parallel::Layout layout(run);
  auto programs = parallel::build_step_programs(layout);
  parallel::check_step_programs(programs, layout.virtual_stages(), layout.micro_batches());
  train::Trainer trainer(run, world, std::move(programs));
  observe::send_message(place.message_fd, observe::ReadyMessage{world.rank()});
  train_all_steps(run, world.rank(), trainer, place);

  const train::EvaluationReport held_out = trainer.evaluate();
  if (!std::isfinite(held_out.loss)) {
    throw RunError(
        "the held-out loss is not finite: the last step left weights that overflow. Try a smaller train.lr.");
  }
  const train::WeightsHash hash = trainer.weights_hash();
  if (world.rank() == 0) {
    observe::send_message(place.message_fd,
                          observe::EvaluationMessage{run.train.steps, held_out.loss, held_out.tokens});
    observe::send_message(place.message_fd, observe::FinalMessage{hash, held_out.loss});
  }
}

}  // namespace lockstep::worker
