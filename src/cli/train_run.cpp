#include "cli/train_run.hpp"

#include <fmt/format.h>

#include <poll.h>

#include <algorithm>
#include <cerrno>
#include <cmath>
#include <cstring>
#include <limits>
#include <map>

#include "base/error.hpp"
#include "base/json.hpp"
#include "base/units.hpp"
#include "cli/output.hpp"
#include "cli/prediction.hpp"
#include "cli/run_text.hpp"
#include "observe/chrome_trace.hpp"
#include "observe/span.hpp"
#include "parallel/mesh.hpp"

namespace lockstep::cli {

namespace {

std::string process_name(const parallel::Mesh& mesh, int rank) {
  const parallel::Coordinates c = mesh.coordinates(rank);
  return fmt::format("rank {}  tp{} cp{} pp{} dp{}", rank, c.tp, c.cp, c.pp, c.dp);
}

}  // namespace

TrainRun::TrainRun(const config::RunFile& run, observe::RunFolder folder, std::FILE* out)
    : run_(run),
      folder_(std::move(folder)),
      lock_(folder_.path()),
      out_(out),
      store_(observe::RunStore::create(folder_.database())),
      progress_(out, observe::detect_terminal(fileno(out)), run.name, run.train.steps),
      assembly_(static_cast<size_t>(run.parallel.world_size())) {
  store_.set_meta("name", run.name);
  store_.set_meta("steps", std::to_string(run.train.steps));
  store_.set_meta("first_steady_step", std::to_string(first_steady_step(run.train)));
  store_.set_meta("state", "running");
}

resilience::LaunchEnd TrainRun::go(const std::filesystem::path& worker) {
  event("start", -1, fmt::format("{} workers", run_.parallel.world_size()));
  predict();
  resilience::LaunchEnd end;
  try {
    end = launch_workers(worker);
    take_steps(true);
    // After a failure or an interruption nobody waits for a reader; the steps are in the run store.
    show_waiting(end.kind == resilience::LaunchEnd::Kind::finished);
    if (waiting_.empty()) progress_.finish();
  } catch (const std::exception& error) {
    store_.set_meta("state", "failed");
    event("error", -1, error.what());
    take_steps(true);
    throw;
  }
  switch (end.kind) {
    case resilience::LaunchEnd::Kind::finished:
      check_worth();
      merge_trace();
      store_.set_meta("state", "finished");
      break;
    case resilience::LaunchEnd::Kind::interrupted:
      store_.set_meta("state", "interrupted");
      event("interrupted", -1, end.text);
      log(fmt::format("{} after step {} of {}\n{}", end.text, steps_.empty() ? 0 : steps_.back().step,
                      run_.train.steps, kept()));
      break;
    case resilience::LaunchEnd::Kind::failed:
      store_.set_meta("state", "failed");
      event("error", end.rank, end.text);
      throw RunError(fmt::format("the run failed after step {} of {}: {}\n{}",
                                 steps_.empty() ? 0 : steps_.back().step, run_.train.steps, end.text,
                                 kept()));
  }
  return end;
}

// What the simulator says of this run's step, kept beside what the steps will take. A run does not need it.
void TrainRun::predict() {
  try {
    prediction_ = predict_step(run_);
    store_.set_prediction(*prediction_);
  } catch (const std::exception& error) {
    prediction_.reset();
    event("prediction failed", -1, error.what());
    waiting_.push_back({fmt::format("this run's step is not predicted: {}", error.what())});
  }
}

// A run that ended, but has nothing to show.
void TrainRun::check_worth() {
  if (!std::filesystem::exists(folder_.database())) {
    throw RunError(fmt::format("all {} steps were taken, but {} is gone, removed while the run went on",
                               steps_.size(), folder_.path().string()));
  }
  const auto skipped = std::count_if(steps_.begin(), steps_.end(), [](const auto& s) { return s.skipped; });
  if (static_cast<size_t>(skipped) < steps_.size()) return;
  store_.set_meta("state", "failed");
  event("error", -1, "every step was skipped");
  throw RunError(fmt::format("all {} steps were skipped, so no weight has changed; the first began in {}\n{}",
                             steps_.size(), steps_.front().trouble, kept()));
}

resilience::LaunchEnd TrainRun::launch_workers(const std::filesystem::path& worker) {
  resilience::LaunchPlan plan;
  plan.worker = worker;
  plan.run_folder = folder_.path();
  plan.world_size = static_cast<int>(run_.parallel.world_size());
  resilience::LaunchListener listener;
  listener.started = [this](int rank, pid_t pid) { event("worker", rank, fmt::format("pid {}", pid)); };
  listener.message = [this](int rank, const observe::WorkerMessage& message) { take(rank, message); };
  return launch(plan, listener);
}

void TrainRun::take(int rank, const observe::WorkerMessage& message) {
  if (std::holds_alternative<observe::ReadyMessage>(message)) {
    if (++ready_ == run_.parallel.world_size()) event("ready", -1, "all workers");
  } else if (const auto* peak = std::get_if<observe::MatrixPeak>(&message)) {
    take_peak(*peak);
  } else if (const auto* step = std::get_if<observe::StepRecord>(&message)) {
    assembly_.add(*step);
    take_steps(false);
  } else if (const auto* waits = std::get_if<observe::WaitMessage>(&message)) {
    assembly_.add(*waits);
    take_steps(false);
  } else if (const auto* evaluation = std::get_if<observe::EvaluationMessage>(&message)) {
    take_evaluation(*evaluation);
  } else if (const auto* final = std::get_if<observe::FinalMessage>(&message)) {
    final_ = *final;
    store_.set_meta("eval_loss", fmt::format("{}", final->eval_loss));
    store_.set_meta("weights_hash", observe::hash_text(final->weights_hash));
  } else if (const auto* error = std::get_if<observe::ErrorMessage>(&message)) {
    event("error", rank, error->text);
  }
}

void TrainRun::take_peak(const observe::MatrixPeak& peak) {
  peak_ = peak;
  store_.set_meta("matrix_peak_flops", fmt::format("{}", peak.flops));
  store_.set_meta("matrix_peak_cores", std::to_string(peak.cores));
  waiting_.push_back({"mfu: share of " + peak_text()});
  show_waiting(false);
}

void TrainRun::take_steps(bool as_they_are) {
  while (const auto step = as_they_are ? assembly_.next_as_it_is() : assembly_.next()) take_step(*step);
  if (as_they_are) take_evaluation_lines(run_.train.steps);
}

void TrainRun::take_step(const AssembledStep& step) {
  const observe::StepRecord& record = step.record;
  steps_.push_back(record);
  means_.add(step);
  store_.append_step(record, step.ranks);
  if (record.skipped) event("skipped", -1, fmt::format("step {}: {}", record.step, record.trouble));
  waiting_.push_back({observe::step_line(record), record.step, record.eta_seconds});
  take_evaluation_lines(record.step);
  show_waiting(false);
}

void TrainRun::take_evaluation(const observe::EvaluationMessage& evaluation) {
  store_.append_evaluation(evaluation);
  event("evaluation", -1,
        fmt::format("step {} loss {} over {} tokens", evaluation.step, evaluation.loss, evaluation.tokens));
  if (evaluation.step == run_.train.steps) return;  // the summary's
  evaluations_.push_back(evaluation);
  take_evaluation_lines(steps_.empty() ? 0 : steps_.back().step);
  show_waiting(false);
}

// An evaluation may come before the last waits of its step: the lines keep the order of the run.
void TrainRun::take_evaluation_lines(int64_t up_to_step) {
  while (!evaluations_.empty() && evaluations_.front().step <= up_to_step) {
    waiting_.push_back({fmt::format("held-out loss {:.4f} after step {}", evaluations_.front().loss,
                                    evaluations_.front().step)});
    evaluations_.pop_front();
  }
}

// Unless it may block, shows only what the reader takes at once: a paused pager must not keep the launcher
// from its workers and signals. A line and the bar fit into what a writable pipe takes.
void TrainRun::show_waiting(bool block) {
  pollfd writable{fileno(out_), POLLOUT, 0};
  while (!waiting_.empty() && (block || poll(&writable, 1, 0) == 1)) {
    const Line line = waiting_.front();
    waiting_.pop_front();
    progress_.line(line.text);
    if (line.step > 0) progress_.update(line.step, line.eta_seconds);
    check_output();
  }
}

void TrainRun::check_output() const {
  if (std::ferror(out_) != 0) {
    throw RunError(fmt::format("stopped, because the step lines cannot be written: {}\n{}",
                               std::strerror(errno), kept()));
  }
}

void TrainRun::event(const std::string& kind, int rank, const std::string& text) {
  store_.append_event({observe::unix_seconds(), kind, rank, text});
}

// One trace of all workers' span files, times from the first span on.
void TrainRun::merge_trace() {
  if (run_.train.trace_steps == 0 || run_.train.trace_first_step > run_.train.steps) return;
  std::vector<observe::SpanFile> files;
  int64_t origin = std::numeric_limits<int64_t>::max();
  for (int rank = 0; rank < run_.parallel.world_size(); ++rank) {
    files.push_back(observe::load_spans(folder_.trace() / fmt::format("rank-{}.spans", rank)));
    for (const observe::Span& span : files.back().spans) origin = std::min(origin, span.start_ns);
  }
  const parallel::Mesh mesh(run_);
  observe::ChromeTraceWriter writer(folder_.trace() / "trace.json", origin);
  std::vector<std::map<int64_t, observe::ExposedSeconds>> exposed(files.size());  // by rank and step
  const int64_t end = run_.train.trace_first_step + run_.train.trace_steps;
  for (int64_t step = run_.train.trace_first_step; step < end; ++step) {
    for (const observe::WaitMessage& one : store_.waits(step)) {
      exposed.at(static_cast<size_t>(one.rank))[step] = one.waits.exposed;
    }
  }
  for (const observe::SpanFile& file : files) {
    writer.process(file.rank, process_name(mesh, file.rank));
    observe::write_spans(writer, file);
    observe::write_exposed(writer, file, exposed[static_cast<size_t>(file.rank)]);
  }
  writer.close();
  traced_ = true;
}

std::string TrainRun::peak_text() const {
  return fmt::format("the measured {:.0f} GFLOP/s, {}, {} core{}", peak_->flops / 1e9,
                     config::to_string(run_.train.dtype), peak_->cores, peak_->cores == 1 ? "" : "s");
}

std::string TrainRun::kept() const {
  if (!std::filesystem::exists(folder_.database())) {
    return fmt::format("  nothing is kept: {} is gone, removed while the run went on",
                       folder_.path().string());
  }
  return fmt::format("  kept in {}: run.db with every step up to there", folder_.path().string());
}

// `tokens_per_second` is null when no step after the third was trained.
Json TrainRun::result() const {
  Json out;
  out["steps"] = steps_.back().step;
  out["first_loss"] = steps_.front().loss;
  out["last_loss"] = steps_.back().loss;
  out["eval_loss"] = final_->eval_loss;
  out["weights_hash"] = observe::hash_text(final_->weights_hash);
  out["tokens_per_second"] = means_.tokens_per_second();
  out["restarts"] = 0;
  out["run_directory"] = folder_.path().string();
  return out;
}

std::string TrainRun::prediction_text() const {
  const double measured = median_step_seconds(steps_, first_steady_step(run_.train));
  if (!prediction_ || std::isnan(measured)) return "";
  return fmt::format("{} a step, median; predicted {} with {}, {}\n", format_seconds(measured),
                     format_seconds(prediction_->seconds), prediction_->cluster,
                     off_by(prediction_->seconds, measured));
}

std::string TrainRun::summary() const {
  const std::string folder = folder_.path().string();
  std::string text =
      fmt::format("\nheld-out loss {:.4f}  training loss {:.4f} to {:.4f} nats a token (measured)\n",
                  final_->eval_loss, steps_.front().loss, steps_.back().loss);
  text += fmt::format("weights_hash {}", observe::hash_text(final_->weights_hash));
  if (const double rate = means_.tokens_per_second(); std::isfinite(rate)) {
    text += fmt::format("  {} tokens/s, median {}",
                        format_thousands(static_cast<int64_t>(std::llround(rate))), means_.over());
  }
  text += "\n" + prediction_text() + (peak_ ? means_.text(peak_text()) : "");
  text += fmt::format("\n{}\n  run.toml          the run file, resolved\n", folder);
  text += "  run.db            every step, what each rank waited for, every event (SQLite)\n";
  if (traced_) {
    text +=
        fmt::format("  trace/trace.json  steps {} to {} of every worker, for chrome://tracing or Perfetto\n",
                    run_.train.trace_first_step,
                    std::min(run_.train.trace_first_step + run_.train.trace_steps - 1, run_.train.steps));
  }
  const std::string program = program_path();
  text += "\nnext:\n";
  text += fmt::format("  {} runs export {}   every step as CSV\n", program, folder);
  text += fmt::format("  {0} simulate {1}/run.toml{2}   the same program, modelled\n", program, folder,
                      traced_ ? " --against " + folder : "");
  return text;
}

}  // namespace lockstep::cli
